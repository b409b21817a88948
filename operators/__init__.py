"""What is to be written: operators, their cases, oracles, baselines, cost models and mutants.

One folder a source (``aten``, ``vllm``, ``cublas``), in it one file a family; ``registry`` finds
them. Device layer: imports torch, numpy and the standard library only.
"""
