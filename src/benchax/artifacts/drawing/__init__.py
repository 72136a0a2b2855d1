"""From the text of a compiled program to its picture, in four steps that know little of one another.

opcodes     what kind of work an operation is
dataflow    text to boxes and arrows
layered     boxes of given sizes and arrows to places
picture     all of it to SVG
"""
