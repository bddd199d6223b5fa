"""Compares our outputs with those of bigTpuProfile; see scripts/tpu-equality."""

import collections, glob, json, math, os, random, struct, subprocess, sys, tempfile

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

tool, generator, ours = sys.argv[1:]

# name, arguments of the generator, whether the tool's default figures are right
CAPTURES = [
    (f"{chip} {what}", ["--chip", chip, *arguments, *common], is_right and (chip.startswith("aks") or what.startswith("bmodel")))
    for chip in ("aks", "aksv", "bm1688", "cv84x6")
    for what, arguments, is_right in (
        ("mode 0", ["--mode", "0"], True),
        # Short kernels: every fourth is issued by descriptors, and on CV84X6 another fourth by generators.
        ("mode 1", ["--mode", "1", "--des", "--rvt", "--kernel-len", "32"], True),
        ("mode 2", ["--mode", "2", "--des", "--rvt", "--kernel-len", "32"], True),
        ("mode 1, any figures", ["--mode", "1", "--rvt", "--kernel-len", "32"], True),
        ("mode 2, any figures", ["--mode", "2", "--rvt", "--kernel-len", "32"], True),
        ("bmodel", ["--style", "bmodel"], True),
        ("bmodel, layers", ["--style", "bmodel"], True),
        ("mode 1, host trace", ["--mode", "1"], True),
        ("mode 1, counter wrap", ["--mode", "1", "--wrap"], False),
    )
    for common in (["--records", "2000", "--seed", "7"],)
]


def write_layers(capture):
    """The files of a compiler beside a capture: on every core layers of seven and five commands."""
    operations = ["Conv2D", "Active", "MatMul", "Add", "Softmax", "Load", "Pool2D", "Reshape", "Cast", "Lut", "LayerNorm"]

    def tensor(shape, layout="eu_align"):
        return {"memory_type": shape, "address": 4096, "layout": layout}

    three = [tensor("<1x64x28x28xf16>"), tensor("<64x64x3x3xf16>"), tensor("<1x64x1x1xf32>")]
    layers = []
    for core in range(len(glob.glob(f"{capture}/cdmlib*.profile"))):
        for index in range(60):
            layers.append({
                "file-line": index, "subnet_id": 0, "core_id": core,
                "opcode": "tpu." + operations[index % len(operations)],
                "tiu_dma_id(before)": [7 * index, 5 * index], "tiu_dma_id(after)": [7 * index + 7, 5 * index + 5],
                "operands": three if index % 3 == 0 else [tensor("<1x64x28x28xf16>"), {}],
                "results": [tensor("<1x64x28x28xf16>")],
            })
    json.dump(layers, open(f"{capture}/tensor_location.json", "w"))
    with open(f"{capture}/final.mlir", "w") as file:
        file.write('module @net attributes {module.FLOPs = 123456789 : i64, module.chip = "all", module.mode = "F16"} {\n}\n')


def shake(capture):
    """Draws what the generator gives few values: conflicts, counters of transfers, memories, variants of generators."""
    draw = random.Random(11)
    is_small = "arch=4\n" not in open(f"{capture}/global.profile").read()  # records of BM1688 are larger
    for path in glob.glob(f"{capture}/cdmlib*.profile"):
        data, at = bytearray(open(path, "rb").read()), 0
        while at < len(data):
            kind, length = struct.unpack_from("<II", data, at)
            at += 8
            if kind == 3 and is_small:
                for row in range(at, at + length, 16):
                    begin, end, _, misc = struct.unpack_from("<IIII", data, row)
                    if misc != 2:
                        struct.pack_into("<I", data, row + 12, draw.randrange(2, (end - begin) % 2**32 + 4) << 1)
            if kind in (4, 11):
                words = range(4, 16) if is_small else range(3, 32)
                for row in range(at, at + length, 64 if is_small else 256):
                    busy = any(struct.unpack_from("<16I", data, row)[4:])
                    for word in words if busy else ():
                        struct.pack_into("<I", data, row + 4 * word, draw.randrange(1, 1 << draw.randrange(2, 24)))
            if kind == 5:
                for place in range(at, at + length, 4):
                    (node,) = struct.unpack_from("<I", data, place)
                    if node & 0x7F == 13 and node >> 7 & 7 == 1:  # a generator of transfers: any variant, and one too many
                        struct.pack_into("<I", data, place, node & ~(31 << 15) | draw.randrange(10) << 15)
                    elif node & 0x7F == 1 and node >> 7 & 7 == 1 and node >> 10 & 31 in (0, 1):  # any memories
                        ends = draw.randrange(3) << 4 | draw.randrange(3) << 6
                        struct.pack_into("<I", data, place, node & ~(0xF0 << 20) | ends << 20)
            at += length
        open(path, "wb").write(data)


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
            return (value.strip() if isinstance(value, str) else value) or None

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


def layer_rows(book):
    """Rows of the two sheets of layers from their heads on, remarks and boxes left out."""
    rows = []
    for name, head in (("Summary", "Function"), ("Layer by Layer Info", "layer_id")):
        sheet = trimmed(book.get(name, []))
        starts = [index for index, row in enumerate(sheet) if head in row[:2]]
        columns = None
        for row in sheet[starts[0]:] if starts else []:
            if "Case" in row[:2]:
                columns = row.index("Remark")  # remarks are in other words
            # Operations of a category come in the order of a hash.
            rows.append([value for value in row[:columns] if not isinstance(value, str) or not value.startswith("{")])
    return rows


def same(one, two):
    if isinstance(one, float) and isinstance(two, float):
        return math.isclose(one, two, rel_tol=1e-4, abs_tol=1e-3)
    return one == two


def equal_rows(mine, theirs):
    pairs = zip(mine, theirs)
    equal = sum(len(one) == len(two) and all(map(same, one, two)) for one, two in pairs)
    return f"{equal}/{max(len(mine), len(theirs))}" if theirs else ""


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
heads = ["capture", "RegInfo and summary", "trace: slices", "workbook: sheets of records",
         "with `--compat`: RegInfo and summary", "sheets of records", "rows of layers"]
print("| " + " | ".join(heads) + " |")
print("|" + " --- |" * len(heads))
for name, arguments, is_right in CAPTURES:
    with tempfile.TemporaryDirectory() as folder:
        capture = f"{folder}/cdm_profile_data_dev0-0"
        traced = ["--trace", f"{folder}/host.json"] if "host trace" in name else []
        subprocess.run([f"{tool}/bin/python", generator, "--out", capture, *arguments, *traced], check=True,
                       stdout=subprocess.DEVNULL)
        host = []
        if "any figures" in name:
            shake(capture)
        if "layers" in name:
            write_layers(capture)
        if "host trace" in name:
            host = ["--trace_file", f"{folder}/host.json"]
        code = run([f"{tool}/bin/bigTpuProfile", capture, f"{folder}/theirs", "--enable_doc", *host])
        run([ours, "tpu", "view", capture, f"{folder}/ours", *host])
        run([ours, "tpu", "view", capture, f"{folder}/compat", "--compat", *host])
        if code != 0 or not glob.glob(f"{folder}/theirs/PerfDoc/*.xlsx"):
            print(f"| {name} | the tool fails ({code}) | | | | | |", flush=True)
            continue
        theirs, mine, compat = (texts(f"{folder}/{which}") for which in ("theirs", "ours", "compat"))
        one, two = slices(f"{folder}/theirs/perfetto.pftrace"), slices(f"{folder}/ours/perfetto.pftrace")
        books = [cells(f"{folder}/theirs/PerfDoc/theirs.xlsx")]
        books += [cells(f"{folder}/{which}/PerfDoc/PerfAI_output.xlsx") for which in ("ours", "compat")]
        book, own, old = map(data_cells, books)
        sheets = [sum(trimmed(book[sheet]) == trimmed(found.get(sheet, [])) for sheet in book) for found in (own, old)]
        row = [equal_part(mine, theirs), f"{sum((one & two).values())}/{sum(one.values())}", f"{sheets[0]}/{len(book)}",
               equal_part(compat, theirs), f"{sheets[1]}/{len(book)}", equal_rows(layer_rows(books[2]), layer_rows(books[0]))]
        print(f"| {name} | " + " | ".join(row) + " |", flush=True)
        failed |= is_right and mine != theirs
sys.exit(1 if failed else 0)
