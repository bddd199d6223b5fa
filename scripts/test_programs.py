"""Runs the workspace's test programs side by side: test_programs.py MESSAGES [FAILED…]

MESSAGES is what `cargo test --no-run --message-format=json` printed. FAILED are names of checks that have already failed.

`cargo test` runs one program at a time. Many of these programs wait for workers, timers and servers, so further
programs use the processor meanwhile. Output is printed per program, when it has ended; all programs run even if some fail.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

# Programs that take longest start first, so that no long program runs alone at the end.
LONGEST = """
correctness emulated learning searches campaign profiles hostile streams prediction fleets seeds operators models networks device
whole_on_boards revisions slurm spills boards coruns refusals
""".split()
# Programs that compare times of several processes with each other run alone, at the end.
ALONE = ["nights"]
SIDE_BY_SIDE = 3
# Longer than any program takes on a busy machine.
DEADLINE_S = 1800
# Process groups of running programs.
RUNNING = set()
RESULT = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", re.MULTILINE)


def read_programs(messages):
    """Returns name, label, executable and package folder of each test program."""
    programs = []
    for line in messages.read_text().splitlines():
        message = json.loads(line)
        if message.get("reason") != "compiler-artifact" or not message["executable"] or not message["profile"]["test"]:
            continue
        folder = pathlib.Path(message["manifest_path"]).parent
        target = message["target"]
        source = os.path.relpath(target["src_path"], folder)
        label = f"{folder.name}: {source}"
        programs.append((target["name"], label, message["executable"], folder))
    return programs


def start_order(program):
    name = program[0]
    return LONGEST.index(name) if name in LONGEST else len(LONGEST)


def run_program(program):
    """Runs one test program. Returns its label, output, exit status and seconds."""
    _, label, executable, folder = program
    started = time.monotonic()
    environment = {**os.environ, "CARGO_MANIFEST_DIR": str(folder)}
    process = subprocess.Popen(
        [executable],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    RUNNING.add(process.pid)
    try:
        output, _ = process.communicate(timeout=DEADLINE_S)
        status = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        output += f"\nerror: killed after {DEADLINE_S} s\n".encode()
        status = -signal.SIGKILL
    RUNNING.discard(process.pid)
    return label, output.decode(errors="replace"), status, time.monotonic() - started


def stop_programs(_number, _frame):
    """Ends at once on Ctrl-C, with the running programs, which are in process groups of their own."""
    for group in list(RUNNING):
        os.killpg(group, signal.SIGKILL)
    os._exit(130)


def main():
    programs = sorted(read_programs(pathlib.Path(sys.argv[1])), key=start_order)
    groups = [
        (SIDE_BY_SIDE, [one for one in programs if one[0] not in ALONE]),
        (1, [one for one in programs if one[0] in ALONE]),
    ]
    failed, counts = sys.argv[2:], [0, 0, 0]
    for at_once, group in groups:
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            for future in concurrent.futures.as_completed([pool.submit(run_program, one) for one in group]):
                label, output, status, seconds = future.result()
                print(f"     Running {label} ({seconds:.1f} s)\n{output}", flush=True)
                for result in RESULT.finditer(output):
                    counts = [count + int(number) for count, number in zip(counts, result.groups(), strict=True)]
                if status != 0:
                    failed.append(f"{label} (exit status {status})")
    for one in failed:
        print(f"error: failed: {one}", file=sys.stderr)
    verdict = "FAILED" if failed else "ok"
    print(
        f"test result: {verdict}. {counts[0]} passed; {counts[1]} failed; {counts[2]} ignored in {len(programs)} programs",
        flush=True,
    )
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, stop_programs)
    main()
