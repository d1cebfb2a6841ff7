// What a trace has beside stacks and calls: counters with their course, aggregates without stacks, and the numbers of events.

import type { AggregateRow, CounterRow, Data, EventRow } from "./data.ts";
import { commandLine, make, panel } from "./dom.ts";
import { amount, counted, duration, grouped, percent } from "./format.ts";
import type { State } from "./state.ts";
import { Table, bars } from "./tables.ts";

const valueOf = (value: number | null, unit: string | null) =>
  value === null ? "" : unit === "ns" ? duration(value) : unit === null ? grouped(value) : amount(value, unit);

/** Small averages have decimals. */
const average = (value: number, unit: string | null) => (unit === null && value < 10 ? String(Math.round(value * 100) / 100) : valueOf(Math.round(value), unit));

/** The total of a counter as in the first line of the page: `page-faults 1,240`. */
export function totals(data: Data): string[] {
  return (data.summaries?.counters ?? []).slice(0, 4).map((row) => `${row.event} ${row.total === null ? "not counted" : valueOf(row.total, row.unit)}`);
}

export class Counters {
  private readonly panel = panel("counters", "Counters");
  readonly element = this.panel.element;
  private readonly command = commandLine(() => this.state.command(["sql", "SELECT event, unit, sum(count) AS total FROM counts GROUP BY event, unit"], { threads: false, time: false }));

  constructor(data: Data, private readonly state: State) {
    const rows = data.summaries!.counters;
    const table = new Table<CounterRow>([], 0, null, { label: "Counters" });
    const hasErrors = rows.some((row) => row.error !== null);
    const isShared = rows.some((row) => row.share !== null && row.share < 0.999);
    table.show(rows, [
      { title: "counter", value: (row) => row.event, isName: true },
      { title: "total", value: (row) => row.total, text: (row) => valueOf(row.total, row.unit) },
      { title: "periods", value: (row) => row.periods, text: (row) => grouped(row.periods) },
      { title: "per period", value: (row) => (row.total === null ? null : row.total / row.periods), text: (row) => (row.total === null ? "" : average(row.total / row.periods, row.unit)) },
      { title: "all time", value: (row) => row.total, cell: (row) => bars(row.course) },
      ...(isShared ? [{ title: "counted", value: (row: CounterRow) => row.share, text: (row: CounterRow) => (row.share === null ? "" : percent(row.share, 1)) }] : []),
      ...(hasErrors ? [{ title: "not counted", value: (row: CounterRow) => row.error ?? "", isName: true }] : []),
    ]);
    const shared = isShared ? ["counters that ran for a part of the time are estimated"] : [];
    this.panel.note.replaceChildren(...[`${counted(rows.length, "counter")} over the whole trace`, ...shared].map((line) => make("span", {}, line)));
    this.panel.body.append(table.element, this.command.element);
  }

  static has(data: Data): boolean {
    return (data.summaries?.counters.length ?? 0) > 0;
  }

  update(): void {
    this.command.update();
  }
}

export class Aggregates {
  private readonly panel = panel("aggregates", "Aggregates");
  readonly element = this.panel.element;
  private readonly command = commandLine(() => this.state.command([this.isDistributed ? "hist" : "agg"], { threads: false, time: false }));
  private readonly isDistributed: boolean;

  constructor(data: Data, private readonly state: State) {
    const rows = data.summaries!.aggregates;
    this.isDistributed = rows.some((row) => row.count !== null);
    const hasNames = rows.some((row) => row.name !== null);
    const table = new Table<AggregateRow>([], hasNames ? 2 : 1, null, { label: "Aggregates" });
    table.show(rows, [
      ...(hasNames ? [{ title: "aggregation", value: (row: AggregateRow) => row.name ?? "", isName: true }] : []),
      { title: "key", value: (row) => row.keys ?? "", isName: true },
      { title: "value", value: (row) => row.exact_value ?? row.value ?? row.value_count, text: (row) => {
        const value = row.exact_value ?? row.value;
        return value !== null ? (Number.isInteger(value) ? grouped(value) : String(value)) : row.value_count === null ? "" : counted(row.value_count, "value");
      } },
      ...(this.isDistributed ? [{ title: "distribution", value: (row: AggregateRow) => row.value_count, cell: (row: AggregateRow) => bars(row.count ?? []) },
        { title: "from", value: (row: AggregateRow) => first(row.low), text: (row: AggregateRow) => bound(first(row.low)) },
        { title: "to", value: (row: AggregateRow) => last(row.high), text: (row: AggregateRow) => bound(last(row.high)) }] : []),
    ]);
    this.panel.note.replaceChildren(make("span", {}, `${counted(rows.length, "key")}, each as last printed`));
    this.panel.body.append(table.element, this.command.element);
  }

  static has(data: Data): boolean {
    return (data.summaries?.aggregates.length ?? 0) > 0;
  }

  update(): void {
    this.command.update();
  }
}

const first = (bounds: (number | null)[] | null) => bounds?.find((bound) => bound !== null) ?? null;
const last = (bounds: (number | null)[] | null) => [...(bounds ?? [])].reverse().find((bound) => bound !== null) ?? null;
const bound = (value: number | null) => (value === null ? "" : grouped(value));

export class Events {
  private readonly panel = panel("events", "Events");
  readonly element = this.panel.element;
  private readonly command = commandLine(() => this.state.command(["sql", "SELECT * FROM recorded_events"], { threads: false, time: false }));

  constructor(data: Data, private readonly state: State) {
    const rows = data.summaries!.events;
    const table = new Table<EventRow>([], 1, null, { label: "Events" });
    table.show(rows, [
      { title: "event", value: (row) => row.event, isName: true },
      { title: "rows", value: (row) => row.rows, text: (row) => grouped(row.rows) },
      { title: "kind", value: (row) => row.kind, isName: true },
      { title: "table", value: (row) => row.table_name, isName: true },
    ]);
    const all = rows.reduce((sum, row) => sum + row.rows, 0);
    this.panel.note.replaceChildren(make("span", {}, `${counted(all, "row")} of ${counted(rows.length, "event")} in the whole trace`));
    this.panel.body.append(table.element, this.command.element);
  }

  static has(data: Data): boolean {
    return (data.summaries?.events.length ?? 0) > 0;
  }

  update(): void {
    this.command.update();
  }
}
