"""Compares our outputs with those of bigTpuProfile; see scripts/tpu-equality."""

import collections, glob, os, subprocess, sys, tempfile

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

tool, generator, ours = sys.argv[1:]

# name, arguments of the generator, whether the tool's default figures are right
CAPTURES = [
    (f"{chip} {what}", ["--chip", chip, *arguments, *common], is_right and (chip.startswith("aks") or what == "bmodel"))
    for chip in ("aks", "aksv", "bm1688", "cv84x6")
    for what, arguments, is_right in (
        ("mode 0", ["--mode", "0"], True),
        ("mode 1", ["--mode", "1", "--des", "--rvt"], True),
        ("mode 2", ["--mode", "2", "--des", "--rvt"], True),
        ("bmodel", ["--style", "bmodel"], True),
        ("mode 1, counter wrap", ["--mode", "1", "--wrap"], False),
    )
    for common in (["--records", "2000", "--seed", "7"],)
]


def run(command):
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode


def texts(folder):
    paths = glob.glob(f"{folder}/*RegInfo_*.txt") + glob.glob(f"{folder}/summary.txt")
    return {os.path.basename(path): open(path, "rb").read() for path in paths}


def slices(path):
    """Every slice with track, times, category and arguments."""
    trace = Trace()
    trace.ParseFromString(open(path, "rb").read())
    tracks, iids, found = {}, collections.defaultdict(dict), collections.Counter()
    for packet in trace.packet:
        if packet.HasField("track_descriptor"):
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor

    def value(annotation):
        name = annotation.name or iids["a"][annotation.name_iid]
        if annotation.dict_entries:
            return name, tuple(sorted(map(value, annotation.dict_entries)))
        field = annotation.WhichOneof("value")
        found = iids["s"][annotation.string_value_iid] if field == "string_value_iid" else getattr(annotation, field)
        return name, float(found) if field in ("int_value", "double_value") else found

    def full(uuid):
        track = tracks[uuid]
        return (full(track.parent_uuid) + "/" if track.parent_uuid else "") + track.name

    for packet in trace.packet:
        if packet.sequence_flags & 1:
            iids.clear()
        data = packet.interned_data
        for kind, entries in (("c", data.event_categories), ("n", data.event_names), ("a", data.debug_annotation_names)):
            iids[kind].update((entry.iid, entry.name) for entry in entries)
        iids["s"].update((entry.iid, entry.str.decode()) for entry in data.debug_annotation_string_values)
        event = packet.track_event
        if packet.HasField("track_event") and event.type == 1:
            name = event.name or iids["n"][event.name_iid]
            category = tuple(event.categories) or tuple(iids["c"][iid] for iid in event.category_iids)
            annotations = tuple(sorted(map(value, event.debug_annotations)))
            found[(full(event.track_uuid), packet.timestamp, name, category, annotations)] += 1
    return found


def cells(path):
    """Cells by sheet, texts of explanations left out; numbers as numbers."""
    import openpyxl

    def plain(value):
        try:
            return float(value)
        except (TypeError, ValueError):
            return value or None

    book = openpyxl.load_workbook(path, read_only=True)
    return {sheet.title: [[plain(value) for value in row] for row in sheet.iter_rows(values_only=True)] for sheet in book}


def data_cells(book):
    """Rows of records: those from the head with `Engine Id` on."""
    result = {}
    for name, rows in book.items():
        heads = [index for index, row in enumerate(rows) if row and row[0] == "Engine Id"]
        if heads:
            result[name] = rows[heads[0]:]
    return result


def trimmed(rows):
    stripped = []
    for row in rows:
        while row and row[-1] is None:
            row = row[:-1]
        stripped.append(row)
    return stripped


def equal_part(mine, theirs):
    """How many of the texts are equal, of how many."""
    names = set(mine) | set(theirs)
    return f"{sum(mine.get(name) == theirs.get(name) for name in names)}/{len(names)}"


failed = False
print("| capture | RegInfo and summary | trace: slices equal | workbook: sheets of records equal | with `--compat` |")
print("| --- | --- | --- | --- | --- |")
for name, arguments, is_right in CAPTURES:
    with tempfile.TemporaryDirectory() as folder:
        capture = f"{folder}/cdm_profile_data_dev0-0"
        subprocess.run([f"{tool}/bin/python", generator, "--out", capture, *arguments], check=True,
                       stdout=subprocess.DEVNULL)
        code = run([f"{tool}/bin/bigTpuProfile", capture, f"{folder}/theirs", "--enable_doc"])
        run([ours, "tpu", "view", capture, f"{folder}/ours"])
        run([ours, "tpu", "view", capture, f"{folder}/compat", "--compat"])
        if code != 0:
            print(f"| {name} | the tool fails ({code}) | | | |")
            continue
        theirs, mine, compat = (texts(f"{folder}/{which}") for which in ("theirs", "ours", "compat"))
        one, two = slices(f"{folder}/theirs/perfetto.pftrace"), slices(f"{folder}/ours/perfetto.pftrace")
        book = data_cells(cells(f"{folder}/theirs/PerfDoc/theirs.xlsx"))
        own = data_cells(cells(f"{folder}/ours/PerfDoc/PerfAI_output.xlsx"))
        sheets = sum(trimmed(book[sheet]) == trimmed(own.get(sheet, [])) for sheet in book)
        row = (equal_part(mine, theirs), f"{sum((one & two).values())}/{sum(one.values())}", f"{sheets}/{len(book)}")
        print(f"| {name} | {row[0]} | {row[1]} | {row[2]} | {equal_part(compat, theirs)} |", flush=True)
        failed |= is_right and mine != theirs
sys.exit(1 if failed else 0)
