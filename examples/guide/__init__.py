"""The chapters of the performance guide, a file each: importing one adds its sections."""

from guide import benchmarking, compilation, devices, hardware, memory, patterns, precision, profiling, vectorization

__all__ = [
    "benchmarking",
    "compilation",
    "devices",
    "hardware",
    "memory",
    "patterns",
    "precision",
    "profiling",
    "vectorization",
]
