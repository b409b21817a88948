"""The published data set: built, checked, pushed to the Hub, loaded from there or from a folder.

It holds what the benchmark asks (operators, cases) and what the baselines took, as Parquet that
needs none of this project to be read. It does not hold inputs: a row declares each tensor, and
`operators.draws` makes it from a seed.
"""
