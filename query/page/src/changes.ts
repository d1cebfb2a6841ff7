// What changed between two traces, as `diff` found it: by function, by thread, and of calls.

import type { Change, Data } from "./data.ts";
import { button, commandLine, make, panel } from "./dom.ts";
import { amount, counted, duration, grouped } from "./format.ts";
import type { State } from "./state.ts";
import { type Column, Table } from "./tables.ts";

type Row = Change["rows"][number];

export class Changes {
  private readonly panel = panel("changes", "Changes");
  readonly element = this.panel.element;
  private readonly tabs = make("div", { class: "tabs", role: "group", "aria-label": "Comparison" });
  private readonly table: Table<Row>;
  private readonly command = commandLine(() => this.state.command(this.change.command));
  private chosen = 0;

  constructor(private readonly data: Data, private readonly state: State) {
    const all = data.changes ?? [];
    all.forEach((change, index) => this.tabs.append(button(change.title, `Compare ${change.title}`, () => {
      this.chosen = index;
      this.update();
    })));
    this.table = new Table<Row>([], 0, (row) => {
      if (this.change.key === "function" && this.data.profiles.length > 0) state.change({ view: "sandwich", focus: String(row["function"]) });
    }, { label: "Changes", titleOf: (row) => String(row[this.change.key] ?? "") });
    this.panel.tools.append(this.tabs);
    this.panel.body.append(this.table.element, this.command.element);
  }

  static has(data: Data): boolean {
    return (data.changes ?? []).length > 0;
  }

  private get change(): Change {
    return this.data.changes![this.chosen]!;
  }

  update(): void {
    const { change } = this;
    const unit = change.unit ?? "";
    [...this.tabs.children].forEach((child, index) => child.setAttribute("aria-pressed", String(index === this.chosen)));
    const number = (name: string) => (row: Row) => (typeof row[name] === "number" ? row[name] : null);
    const text = (value: number | null) => (value === null ? "" : unit === "ns" ? duration(Math.round(value)) : unit === "" ? grouped(value) : amount(value, unit));
    const signed = (value: number | null) => (value === null ? "" : `${value > 0 ? "+" : value < 0 ? "−" : ""}${text(Math.abs(value))}`);
    const expression = this.state.expression();
    const rows = change.rows.filter((row) => expression === null || expression.test(String(row[change.key] ?? "")));
    const columns: Column<Row>[] = [
      { title: "change", value: (row) => Math.abs(number("change")(row) ?? 0), text: (row) => signed(number("change")(row)) },
      { title: "%", value: number("change_percent"), text: (row) => {
        const value = number("change_percent")(row);
        return value === null ? "new" : `${value > 0 ? "+" : ""}${value.toFixed(1)}`;
      } },
      { title: "before", value: number("before"), text: (row) => text(number("before")(row)) },
      { title: "after", value: number("after"), text: (row) => text(number("after")(row)) },
      { title: "p", value: (row) => -(number("p")(row) ?? 2), text: (row) => { const p = number("p")(row); return p === null ? "" : p < 0.0005 ? "<0.001" : p.toFixed(3); } },
      { title: "significant", value: (row) => Number(row["significant"] ?? false), text: (row) => (row["significant"] === true ? "yes" : row["significant"] === false ? "no" : "not tested") },
      { title: change.key === "comm" ? "thread" : "function", value: (row) => String(row[change.key] ?? ""), isName: true },
      ...(change.rows.some((row) => row["module"] != null) ? [{ title: "module", value: (row: Row) => String(row["module"] ?? "").split("/").pop()!, isName: true }] : []),
    ];
    const significant = change.rows.filter((row) => row["significant"] === true).length;
    this.panel.note.replaceChildren(...[
      ...(change.summary === null ? [] : [change.summary]), `${counted(significant, "significant change")} of ${grouped(change.rows.length)}`,
    ].map((line) => make("span", {}, line)));
    this.table.show(rows, columns);
    this.command.update();
  }
}
