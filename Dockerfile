# The leaderboard alone: no torch, no judge, nothing that runs a candidate.
#
#   docker build -t kernelmark-leaderboard .
#   docker run -p 7860:7860 -v "$HOME/.kernelmark:/data:ro" kernelmark-leaderboard
#
# A database at board/current.duckdb is baked in, for hosts whose disks do not last; see
# leaderboard/space/README.md.
FROM python:3.12-slim

RUN useradd --create-home --uid 1000 app
WORKDIR /app
RUN pip install --no-cache-dir "numpy>=1.26" "duckdb>=1.2" "streamlit>=1.67" "pandas>=2.2" "plotly>=6"
COPY .typing .typing
COPY benchmark benchmark
COPY leaderboard leaderboard
# LICENSE is there so that the pattern may match nothing else.
COPY --chown=app LICENSE board*/current.duckdb /data/

USER app
ENV KERNELMARK_HOME=/data PYTHONPATH=/app/.typing
EXPOSE 7860
HEALTHCHECK CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:7860/_stcore/health')"]
CMD ["streamlit", "run", "leaderboard/app.py", "--server.port=7860", "--server.address=0.0.0.0"]
