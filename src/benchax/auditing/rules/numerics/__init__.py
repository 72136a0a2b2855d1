"""The pack `numerics`: advice about algorithms, and numerical analysis, that holds for NumPy as well.

Off by default. `benchax audit --rules numerics` asks these rules alone; name others next to it to ask them, too.
"""
