"""Writes a table of made-up times into a folder, `table.csv`, and what its columns mean, `mapping.toml`."""

import sys
from pathlib import Path

DEVICES = {"small": (20, 1.0, 200), "large": (80, 1.4, 900)}

folder = Path(sys.argv[1])
mapping = """
operator = "op"
device = "device"
time = { column = "time_us", unit = "us" }

[operators]
product = { form = "contraction", batch = "b", rows = "m", columns = "n", depth = "k" }
soft = { form = "rows", rows = "m", columns = "n", flops_per_element = 5 }
dense = { form = "contraction", batch = 1, rows = "m", columns = "n", depth = "k" }
"""
lines = ["op,device,time_us,b,m,n,k"]
for name, (units, clock_ghz, bandwidth) in DEVICES.items():
    mapping += f"""
[devices.{name}]
units = {units}
flops_per_cycle = 128
clock_ghz = {clock_ghz}
bandwidth_gb_per_s = {bandwidth}
cache_bytes = 4e6
"""
    for step in range(120):
        # Sizes that spread over the range without a generator.
        b, m, n, k = 1 + step % 7, *(16 + (step * 7919 + salt * 104_729) % 700 for salt in (1, 2, 3))
        tiles = b * -(-m // 64) * -(-n // 64)
        product_us = 10 + 2 * 64 * 64 * k * -(-tiles // units) / (0.7 * 128 * clock_ghz * 1e3)
        soft_us = 8 + 8 * m * n / (0.6 * bandwidth * 1e3)
        lines += [f"product,{name},{product_us:.3f},{b},{m},{n},{k}", f"soft,{name},{soft_us:.3f},,{m},{n},"]
        # Layers of the sizes that those of the built-in networks have, so that a whole one can be asked about.
        m, n, k = 1 + step % 4, 8 + (step * 104_729) % 400, 32 + (step * 7919) % 900
        dense_us = 6 + 4 * n * k / (0.5 * bandwidth * 1e3) + 2 * m * n * k / (0.5 * 128 * clock_ghz * 1e3)
        lines += [f"dense,{name},{dense_us:.3f},,{m},{n},{k}"]
(folder / "mapping.toml").write_text(mapping)
(folder / "table.csv").write_text("\n".join(lines) + "\n")
