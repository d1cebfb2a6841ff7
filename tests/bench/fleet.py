"""Makes a lake of many hosts by hard links, to measure reports over thousands of traces.

    perfquet-convert traces/*.pqt --to lake -o small --partition date,host
    python3 tests/bench/fleet.py small large 10000

Each trace of the small lake is there again and again, under another name and host: the first half of them on one date, the others on the next.
fleet_samples.py makes traces with many samples. The files of Parquet
are links, so that they have the names of the small lake in their column `trace`: perfquet-query, which takes the name from the record, reads
them as traces of their own; other engines do not.
"""

import json
import os
import pathlib
import sys


def moved(path, place):
    table = path.split("/date=")[0].split("/host=")[0]
    return f"{table}/{place}"


def main():
    small, large, count = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3])
    own = "_perfquet"
    records = [json.loads(file.read_text()) for file in sorted((small / own / "traces").iterdir())]
    manifests = {}
    for record in records:
        path = next(file["path"] for file in record["files"] if file["path"].startswith(own))
        manifests[record["trace"]] = (path, json.loads((small / path).read_text()))
    for folder in ["traces", "manifests", "staging"]:
        (large / own / folder).mkdir(parents=True, exist_ok=True)
    (large / own / "lock").touch()
    head = json.loads((small / own / "lake.json").read_text())
    head["partition"] = ["date", "host"]
    (large / own / "lake.json").write_text(json.dumps(head))
    made = set()
    for number in range(count):
        day = number * 2 // count
        half = records[len(records) * day // 2 : max(1, len(records) * (day + 1) // 2)]
        record = half[number % len(half)]
        path, manifest = manifests[record["trace"]]
        host, date = f"h{number:05}", ["2026-11-22", "2026-11-23"][day]
        trace = f"h{number:05}-{number:016x}"
        place = f"date={date}/host={host}/{trace}.parquet"
        names = {path: f"{own}/manifests/{trace}.json"}
        for file in record["files"]:
            if file["path"] == path:
                continue
            name = moved(file["path"], place)
            names[file["path"]] = name
            folder = os.path.dirname(name)
            if folder not in made:
                made.add(folder)
                (large / folder).mkdir(parents=True, exist_ok=True)
            os.link(small / file["path"], large / name)
        manifest["facts"]["host"] = host
        manifest["facts"]["other"]["lake.date"] = date
        text = json.dumps(manifest)
        for table in manifest["tables"].values():
            for part in table["parts"]:
                text = text.replace(json.dumps(part["file"]), json.dumps(names[part["file"]]))
        (large / names[path]).write_text(text)
        files = [dict(file, path=names[file["path"]]) for file in record["files"]]
        for file in files:
            if file["path"].startswith(own):
                file["bytes"] = len(text)
        new = dict(record, trace=trace, name=host, date=date, host=host, files=files)
        (large / own / "traces" / f"{trace}.json").write_text(json.dumps(new))


main()
