"""Seconds, bytes and counts: to text and back. Nobody else in benchax formats or parses a quantity.

Inside the program everything is plain seconds and bytes; a unit appears here, at the very end. Times use SI prefixes,
sizes use binary ones (KiB), rates and counts use SI ones (GB/s, MFLOP), as the tools of the field do.
"""

from __future__ import annotations

import math
import re

from benchax.errors import UsageError

SECONDS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}
BYTES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
DURATION = "a time above 0, such as 0.5, 500ms or 2min"
_SI = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}

# What people type: us for µs, and both the micro sign and the Greek letter mu.
_SECONDS_READ = SECONDS | {"us": 1e-6, "μs": 1e-6, "min": 60.0, "": 1.0}
_BYTES_READ = BYTES | {"": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
# From here on a number rounds to 1000 of the smaller unit, and reads better as 1.00 of this one. A little below 0.9995,
# because neither 0.9995 nor 1e-3 is exact in binary.
_CARRIES = 0.9995 - 1e-9
_QUANTITY = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-zµμ%]*)\s*")


def seconds(value: float, digits: int = 3) -> str:
    """58.1 µs; 0.3 ns; 12.0 s. `digits` significant digits, never scientific notation between 1 fs and 1 Ms."""
    unit = seconds_unit(value)
    return f"{number(value / SECONDS[unit], digits)} {unit}"


def seconds_unit(value: float) -> str:
    """The unit in which `value` reads best; ns below one nanosecond, s for zero and NaN."""
    size = abs(value)
    return next((unit for unit, scale in SECONDS.items() if size >= _CARRIES * scale), "ns" if size > 0 else "s")


def seconds_range(low: float | None, high: float | None) -> str:
    """57.2 – 59.3 µs: both ends in one unit, the unit of the greater one. 112.1 – 112.4 µs: with up to two more digits
    if the ends would otherwise look the same. Empty if an end is not known."""
    if low is None or high is None:
        return ""
    unit = seconds_unit(max(abs(low), abs(high)))
    return f"{' – '.join(_ends(low, high, SECONDS[unit]))} {unit}"


def seconds_around(value: float, low: float, high: float) -> str:
    """5.08–5.31: the ends of an interval in the unit that `seconds(value)` has, to follow it in brackets."""
    return "–".join(_ends(low, high, SECONDS[seconds_unit(value)]))


def _ends(low: float, high: float, scale: float) -> tuple[str, str]:
    digits = 3
    while low != high and number(low / scale, digits) == number(high / scale, digits) and digits < 5:
        digits += 1
    return number(low / scale, digits), number(high / scale, digits)


def size(value: float, digits: int = 3) -> str:
    """528 KiB; 12.0 MiB; 0 B."""
    unit = next((u for u, scale in reversed(BYTES.items()) if abs(value) >= _CARRIES * scale), "B")
    return f"{value:.0f} B" if unit == "B" else f"{number(value / BYTES[unit], digits)} {unit}"


def count(value: float, what: str = "", digits: int = 3) -> str:
    """1.31 MFLOP; 24.0 k; 3. `what` follows the SI prefix."""
    prefix = next((p for p, scale in reversed(_SI.items()) if abs(value) >= _CARRIES * scale), "")
    scaled = value / _SI[prefix]
    text = str(int(value)) if not prefix and float(value).is_integer() else number(scaled, digits)
    return f"{text} {prefix}{what}".rstrip()


def plural(n: int, what: str) -> str:
    """1 program; 3 programs."""
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def rate(value: float, what: str, digits: int = 3) -> str:
    """2.51 GB/s; 41.0 GFLOP/s."""
    return f"{count(value, what, digits)}/s"


def amount_per_s(value: float, what: str) -> str:
    """1.31 M tokens/s; 2.51 GB/s of "bytes"; 41.0 GFLOP/s of "flops"."""
    unit = {"bytes": "B", "flops": "FLOP"}.get(what)
    return rate(value, unit) if unit else f"{count(value)} {what}/s"


def percent(value: float, digits: int = 2) -> str:
    """0.0213 as 2.1 %."""
    return f"{number(100 * value, digits)} %"


def change(ratio: float, low: float | None = None, high: float | None = None) -> str:
    """1.32 as +32 %, 0.5 as -50 %; with the ends of its interval, +3.2 % (+2.1 to +4.4 %)."""
    share = 100 * (ratio - 1)
    text = f"{'+' if share >= 0 else '-'}{number(abs(share), 2 if abs(share) < 100 else 3)} %"
    if low is None or high is None:
        return text
    return f"{text} ({change(low).removesuffix(' %')} to {change(high)})"


def number(value: float, digits: int = 3) -> str:
    """`value` with `digits` significant digits and no exponent: 58.1, 0.00312, 1250."""
    if not math.isfinite(value) or value == 0:
        return str(value) if value else "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    rounded = f"{value:.{decimals}f}"
    # Rounding may have carried into a new digit (9.996 -> 10.00): one decimal too many.
    if decimals and len(rounded.lstrip("-").replace(".", "").lstrip("0")) > digits:
        rounded = f"{value:.{decimals - 1}f}"
    return rounded


def parse_seconds(text: str | float) -> float:
    """0.5, '0.5', '500ms', '2 min' as seconds.

    Raises:
        UsageError: not a number with one of the units s, ms, µs (us), ns, min.
    """
    return _parse(text, _SECONDS_READ, "a time such as 0.5, 500ms, 20us or 2min")


def parse_duration(text: str | float) -> float:
    """As `parse_seconds`, for a time above 0: a limit of zero is not a limit.

    Raises:
        UsageError: not a time, or not above 0.
    """
    value = _parse(text, _SECONDS_READ, DURATION)
    if value <= 0:
        raise UsageError(f"{text!r} isn't a duration", DURATION)
    return value


def read_duration(name: str, given: str | float | None, source: str = "the call") -> float | None:
    """The option `name` as seconds: 2.5, "500ms", "2min"; None stays None.

    Raises:
        UsageError: it is no time above 0; names the option and where it was given.
    """
    if given is None:
        return None
    try:
        return parse_duration(given)
    except UsageError:
        raise UsageError(f"option {name!r} in {source} cannot be {given!r}", DURATION) from None


def parse_size(text: str | float) -> int:
    """'64 MiB', '2GB', 4096 as bytes; MB is 10**6, MiB is 2**20.

    Raises:
        UsageError: not a number with one of the units B, KiB … TiB, kB … TB.
    """
    return round(_parse(text, _BYTES_READ, "a size such as 4096, 64MiB or 2GB"))


def read_share(given: object) -> float:
    """0.02, "0.02" and "2%" as 0.02; NaN if it is none of these, so that no bound holds."""
    match = _QUANTITY.fullmatch(str(given))
    divisor = {"": 1, "%": 100}.get(match[2]) if match else None
    return float(match[1]) / divisor if match and divisor else math.nan


def _parse(text: str | float, scales: dict[str, float], expected: str) -> float:
    match = _QUANTITY.fullmatch(str(text))
    value = float(match[1]) * scales[match[2]] if match and match[2] in scales else math.nan
    if not math.isfinite(value):  # not a quantity at all, or one like 1e999
        raise UsageError(f"cannot read {text!r} as a quantity", expected)
    return value
