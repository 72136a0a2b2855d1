"""Audits: rules that look at a function or a program, each with evidence for what it says."""
