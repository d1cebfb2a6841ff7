// Rows of any query: sorted by a click, times lead to the timeline, all of them as CSV.

import { button, make } from "../dom.ts";
import { duration, grouped, harmless, percent } from "../format.ts";
import { exactTime } from "../state.ts";
import type { Cell, Grid } from "./api.ts";

/** Rows that are drawn; the others are in the CSV. */
const MOST = 500;
const LONGEST = 400;

/** Columns whose numbers are names of threads, calls and other things. */
const NAMES = /(^|_)(pid|tid|id|inode|dev)$/;

function text(cell: Cell, name: string, kind: string): string {
  if (cell === null) return "";
  // Exact sums are texts.
  if (kind === "duration" && typeof cell === "string") return duration(Number(cell));
  if (typeof cell === "number") {
    if (kind === "duration") return duration(cell);
    if (NAMES.test(name)) return String(cell);
    if (kind === "share") return percent(cell, 1);
    return Number.isInteger(cell) ? grouped(cell) : String(Number(cell.toPrecision(6)));
  }
  return String(cell);
}

/** A cell of CSV. What a spreadsheet would run as a formula begins with an apostrophe. */
function csv(cell: Cell): string {
  const value = cell === null ? "" : String(cell);
  const safe = typeof cell === "string" && /^[=+@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

export class GridTable {
  readonly element = make("div", { class: "grid" });
  private order = -1;
  private isDescending = false;

  /** `jump` shows the time of a row in the timeline: nanoseconds of the trace's clock, and the row's trace. */
  constructor(private readonly grid: Grid, private readonly start: bigint, private readonly jump: ((time: bigint, trace: string | null) => void) | null,
    /** What a click at a name of a column does. */
    private readonly links: Record<string, { title: string; open: (row: Cell[]) => void }> = {}) {
    this.draw();
  }

  private sorted(): Cell[][] {
    if (this.order < 0) return this.grid.rows;
    const { order } = this;
    const isNumber = this.grid.columns[order]!.kind !== "text";
    const compare = (a: Cell, b: Cell): number => {
      if (a === null || b === null) return Number(b === null) - Number(a === null);
      if (typeof a === "number" && typeof b === "number") return a - b;
      if (isNumber && /^-?\d+$/.test(String(a)) && /^-?\d+$/.test(String(b))) return BigInt(a) < BigInt(b) ? -1 : Number(BigInt(a) > BigInt(b));
      return String(a).localeCompare(String(b));
    };
    const sign = this.isDescending ? -1 : 1;
    return [...this.grid.rows].sort((a, b) => sign * compare(a[order]!, b[order]!));
  }

  private draw(): void {
    const { columns } = this.grid;
    const traceColumn = columns.findIndex((column) => column.name === "trace");
    const head = columns.map((column, index) => {
      const state = index !== this.order ? "none" : this.isDescending ? "descending" : "ascending";
      const sort = button(harmless(column.name), "Sort", () => {
        this.isDescending = this.order === index ? !this.isDescending : column.kind !== "text";
        this.order = index;
        this.draw();
      });
      return make("th", { scope: "col", "aria-sort": state, ...(column.kind === "text" ? { class: "name" } : {}) }, sort);
    });
    const rows = this.sorted().slice(0, MOST).map((row) => make("tr", {}, ...row.map((cell, index) => {
      const { kind } = columns[index]!;
      if (kind === "time" && typeof cell === "string" && this.jump !== null) {
        const time = BigInt(cell);
        const trace = traceColumn < 0 ? null : String(row[traceColumn]);
        const relative = Number(time - this.start);
        const label = trace !== null || relative < 0 ? cell : exactTime(relative);
        return make("td", {}, button(label, `Show ${cell} in the timeline`, () => this.jump!(time, trace)));
      }
      const shown = harmless(text(cell, columns[index]!.name, kind));
      const cut = shown.length > LONGEST ? `${shown.slice(0, LONGEST)}…` : shown;
      const link = this.links[columns[index]!.name];
      if (link !== undefined && cell !== null && shown !== "") return make("td", { class: "name" }, button(cut, link.title, () => link.open(row)));
      return make("td", { ...(kind === "text" ? { class: "name" } : {}), ...(shown === cut ? {} : { title: shown.slice(0, 4000) }) }, cut);
    })));
    const { rows: all, is_cut: isCut } = this.grid;
    const count = `${grouped(all.length)}${isCut ? " rows and more" : all.length === 1 ? " row" : " rows"}${all.length > MOST ? `, ${MOST} shown` : ""}`;
    this.element.replaceChildren(make("p", { class: "note" }, count, " ", button("CSV", "Save these rows as CSV", () => this.save())),
      make("div", { class: "table" }, make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows))));
  }

  private save(): void {
    const lines = [this.grid.columns.map((column) => csv(column.name)), ...this.sorted().map((row) => row.map(csv))];
    const url = URL.createObjectURL(new Blob([lines.map((line) => line.join(",")).join("\n"), "\n"], { type: "text/csv" }));
    make("a", { href: url, download: "rows.csv" }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  }
}
