// What is below the timeline: details of an event, reports on the selection, SQL.

import { type Tip, button, commandLine, make } from "../dom.ts";
import { duration, harmless, shellWord } from "../format.ts";
import { exactTime } from "../state.ts";
import { type Cell, type Code, type Details, type FlameTree, type Grid, type PanelRows, get, isCanceled, message, sql } from "./api.ts";
import { codeLines } from "./code.ts";
import { compareTools, compared } from "./compare.ts";
import { FlameView } from "./flame.ts";
import { GridTable } from "./grid.ts";
import type { Wake } from "./marks.ts";
import { SqlPanel } from "./sqlpanel.ts";
import type { Place } from "./timeline.ts";
import { MOST_EVENTS, PANELS, TABS, type View } from "./view.ts";

/** Margin of a shown time, as a part of the range in view. */
const NEAR = 1 / 50;

/** Text of several lines without control characters. */
function harmlessLines(text: string): string {
  return text.split("\n").map(harmless).join("\n");
}

interface Parameters extends Record<string, string | number> {
  trace: number;
  from: number;
  to: number;
  ids: string;
}

export class Drawer {
  readonly element = make("section", { id: "drawer" });
  private readonly tabs = make("div", { class: "tabs", role: "tablist" });
  private readonly body = make("div", { class: "body", id: "panel" });
  private tab = "";
  /** The place of the details, and its title, which the address does not have. */
  private title = "";
  /** What the details say of wake-ups. */
  onWakes: (wakes: Wake[]) => void = () => {};
  private controller: AbortController | null = null;
  private key = "";
  private readonly sql: SqlPanel;
  private readonly flame: FlameView;
  /** Events whose stacks the flame graph can show, by trace. */
  private events: string[] = [];
  /** Events that were sampled. */
  private sampled: string[] = [];

  constructor(private readonly view: View, tip: Tip) {
    this.flame = new FlameView(view, tip, (name) => this.showFlameCode(name));
    this.element.append(make("header", {}, this.tabs, button("×", "Close (Esc)", () => this.open(""))), this.body);
    this.sql = new SqlPanel(view, tip, () => this.cancel(), (grid) => this.grid(grid), (name) => this.showCode(name, ""));
    this.update();
  }

  open(tab: string): void {
    this.view.change({ tab });
  }

  /** Draws the pictures again, in other colors. */
  redraw(): void {
    this.flame.draw();
    this.sql.update();
  }

  showPlace(place: Place): void {
    const { kind, id, from, to, depth, title } = place;
    this.title = title;
    this.view.change({ tab: "details", at: [kind, id, from, to, ...(depth === undefined ? [] : [depth])].join(",") });
  }

  /** The place in the address. */
  private get place(): Place | null {
    const [kind, ...numbers] = this.view.now.at.split(",");
    const [id, from, to, depth] = numbers.map(Number);
    const isKnown = kind === "events" || kind === "samples" || kind === "cpusamples" || kind === "calls" || kind === "states";
    if (!isKnown || id === undefined || from === undefined || to === undefined || numbers.some((one) => !/^-?\d+$/.test(one))) return null;
    return { kind, id, from, to, ...(depth === undefined ? {} : { depth }), title: this.title };
  }

  /** Follows the view. */
  update(): void {
    const { tab, selection, tids, trace, from, to, at, panel, of, code, module, ev, base, by, metric, per } = this.view.now;
    this.element.hidden = tab === "";
    this.tabs.replaceChildren(...TABS.map((name) => {
      const one = button(name === "sql" ? "SQL" : name[0]!.toUpperCase() + name.slice(1), "", () => this.open(this.tab === name ? "" : name));
      one.removeAttribute("title");
      one.setAttribute("role", "tab");
      one.setAttribute("aria-selected", String(name === tab));
      one.setAttribute("aria-pressed", String(name === tab));
      return one;
    }));
    const isNew = tab !== this.tab;
    this.tab = tab;
    if (tab === "sql") {
      if (isNew) this.sql.show(this.body);
      else this.sql.update();
      return;
    }
    // A selection is of its own time; without one, the panels show what is in view.
    const range = selection ?? [from, to];
    const key = tab === "selection" ? JSON.stringify([trace, range, tids, panel, panel === "flame graph" ? of : "", ...(panel === "code" ? [code, module, ev] : panel === "functions" ? [ev] : []), ...(panel === "compare" ? [base, by, metric, per] : [])]) : tab === "details" ? `details ${trace} ${at}` : "";
    if (!isNew && key === this.key) {
      // Zooming a flame graph asks for nothing.
      if (tab === "selection" && panel === "flame graph") this.flame.draw();
      return;
    }
    this.key = key;
    if (tab !== "details") this.onWakes([]);
    if (tab === "selection") void this.drawSelection(range);
    else if (tab === "details") void this.drawDetails();
    else this.cancel();
  }

  private cancel(): AbortSignal {
    this.controller?.abort();
    this.controller = new AbortController();
    return this.controller.signal;
  }

  private jump(time: bigint, trace: string | null): void {
    const { meta } = this.view;
    const number = trace === null ? this.view.now.trace : meta.traces.findIndex((one) => one.name === trace);
    const of = meta.traces[number];
    if (of === undefined) return;
    if (number !== this.view.now.trace) this.view.open(number);
    const at = Number(time - BigInt(of.start));
    const wide = Math.max(64, (this.view.now.to - this.view.now.from) * NEAR, Math.min(of.length / 1000, 1e6));
    this.view.show(at - wide / 2, at + wide / 2);
    this.view.change({ selection: [at, at + 1] });
  }

  private grid(grid: Grid, links: Record<string, { title: string; open: (row: Cell[]) => void }> = {}): HTMLElement {
    return new GridTable(grid, BigInt(this.view.trace.start), (time, trace) => this.jump(time, trace), links).element;
  }

  private failed(error: unknown, to: HTMLElement): void {
    if (!isCanceled(error)) to.replaceChildren(make("pre", { class: "bad" }, message(error)));
  }

  private async drawDetails(): Promise<void> {
    const { place } = this;
    const signal = this.cancel();
    if (place === null) {
      this.body.replaceChildren(make("p", { class: "note" }, "Click an event, a state or a call in the timeline."));
      return;
    }
    this.body.replaceChildren(make("p", { class: "note" }, "reading…"));
    const { kind, id, from, to, depth } = place;
    try {
      this.onWakes([]);
      const found = await get<Details>("detail", { trace: this.view.now.trace, kind, id, from, to, ...(depth === undefined ? {} : { depth }) }, signal);
      this.showDetails(place, found);
    } catch (error) {
      this.failed(error, this.body);
    }
  }

  /** The wake-ups of periods of a thread. */
  private wakesOf({ columns, rows }: Grid): Wake[] {
    const start = BigInt(this.view.trace.start);
    return rows.flatMap((row): Wake[] => {
      const cell = (name: string) => row[columns.findIndex((column) => column.name === name)] ?? null;
      const [time, waker, woken, comm, interrupt] = ["wake_time", "waker_tid", "tid", "waker_comm", "interrupt"].map(cell);
      if (typeof time !== "string" || typeof woken !== "number" || (waker === null && interrupt === null)) return [];
      const by = waker === null ? String(interrupt) : `${comm ?? "thread"} (${waker})`;
      return [{ time: Number(BigInt(time) - start), waker: typeof waker === "number" ? waker : null, woken, by: harmless(by) }];
    });
  }

  private showDetails(place: Place, found: Details): void {
    const { columns, rows } = found.events;
    const wakes = place.kind === "states" ? this.wakesOf(found.events) : [];
    this.onWakes(wakes);
    // Not only in the picture.
    const woken = wakes[0] === undefined ? [] : [make("p", { class: "note", id: "wake" }, `woken by ${wakes[0].by} at ${exactTime(Math.max(0, wakes[0].time))}`)];
    const fields = (rows[0] ?? []).flatMap((cell, index): HTMLElement[] => {
      const column = columns[index]!;
      if (cell === null || column.name === "trace") return [];
      const shown = column.kind === "duration" && typeof cell === "number" ? duration(cell)
        : column.kind === "time" ? `${exactTime(Math.max(0, Number(BigInt(cell as string) - BigInt(this.view.trace.start))))} (${cell})` : harmless(String(cell));
      return [make("tr", {}, make("th", { scope: "row", class: "name" }, harmless(column.name)), make("td", { class: "name" }, shown))];
    });
    const stacks = (["kernel", "user"] as const).flatMap((name, index) => {
      const text = found.stacks?.rows[0]?.[index];
      if (typeof text !== "string" || text === "") return [];
      return [make("div", {}, make("h3", {}, `${name} stack`), make("pre", { class: "stack" }, text.split(";").map(harmless).reverse().join("\n")))];
    });
    const around = found.around !== null && found.around.rows.length > 0 ? [make("div", {}, make("h3", {}, "inside of these calls"), this.grid(found.around))] : [];
    const more = rows.length > 1 ? [make("h3", {}, rows.length >= 20 ? "the first 20 events of this place" : "all events of this place"), this.grid(found.events)] : [];
    const command = commandLine(() => `perfquet-query sql ${shellWord(this.view.trace.path)} ${shellWord(found.sql)}`);
    command.update();
    this.body.replaceChildren(make("h3", {}, place.title === "" ? `${place.kind} of ${place.id}` : place.title), rows.length === 0 ? make("p", { class: "note" }, "Nothing begins here: it began before.") : "", ...woken,
      make("div", { class: "details" }, make("div", { class: "call" }, make("table", { id: "fields" }, make("tbody", {}, ...fields))), ...stacks, ...around), ...more, command.element);
  }

  /** The event types of the shown trace, for the flame graph. */
  setEvents(events: string[], sampled: string[]): void {
    this.events = events;
    this.sampled = sampled;
    // The panels offer them.
    if (this.tab === "selection") {
      this.key = "";
      this.update();
    }
  }

  /** The events whose shares are shown. Of several sampled ones, one is always named, so that the pressed button is what is shown. */
  private get chosen(): string[] {
    const { ev } = this.view.now;
    return ev.length > 0 ? ev : this.sampled.length > 1 ? this.sampled.slice(0, 1) : [];
  }

  /** Keeps the selection, or what is in view, to compare others with it. */
  keep(): void {
    const { trace, selection, from, to } = this.view.now;
    this.view.change({ base: [trace, ...(selection ?? [from, to])], tab: "selection", panel: "compare" });
  }

  private showCode(code: string, module: string): void {
    this.view.change({ tab: "selection", panel: "code", code, module });
  }

  private async drawSelection([from, to]: [number, number]): Promise<void> {
    const signal = this.cancel();
    const { trace, tids, selection, panel } = this.view.now;
    const choice = make("div", { class: "tabs", id: "panels" }, ...PANELS.map((name) => {
      const one = button(name, `Show ${name} of the selection`, () => this.view.change({ panel: name }));
      one.setAttribute("aria-pressed", String(name === panel));
      return one;
    }));
    const words = [selection === null ? "in view" : "selected", `${exactTime(Math.max(0, from))} to ${exactTime(to)}`, duration(to - from),
      ...(tids.length > 0 ? [`tid ${tids.join(", ")}`] : ["all threads"])];
    // A picture that changes is not read out.
    const content = make("div", { id: "content", ...(panel === "flame graph" ? {} : { "aria-live": "polite" }) }, make("p", { class: "note" }, "reading…"));
    this.body.replaceChildren(make("p", { class: "tools" }, make("span", { class: "quiet", id: "selected" }, words.join(" · ")),
      button("Zoom", "Show the selection (f)", () => this.view.show(from, to)),
      button("Clear", "Clear the selection (Esc)", () => this.view.change({ selection: null, tids: [] }))), choice, content);
    const parameters = { trace, from: Math.max(0, from), to: Math.max(1, to), ids: tids.join(",") };
    // Changes while dragging ask for nothing.
    await new Promise((done) => setTimeout(done, 150));
    if (signal.aborted) return;
    try {
      const shown = panel === "flame graph" ? await this.drawFlame(parameters, signal) : panel === "code" ? await this.drawCode(parameters, signal)
        : panel === "compare" ? await this.drawComparison([parameters.from, parameters.to], signal)
        : await this.drawRows(parameters, tids, signal);
      if (!signal.aborted) content.replaceChildren(...shown);
      if (!signal.aborted && panel === "flame graph") this.flame.draw();
    } catch (error) {
      this.failed(error, content);
    }
  }

  /** Notes of a command, and the command. */
  private command(text: string, notes = ""): HTMLElement[] {
    const command = commandLine(() => text);
    command.update();
    return [...(notes === "" ? [] : [make("p", { class: "note" }, ...notes.split("\n").map((line) => make("span", {}, harmless(line))))]), command.element];
  }

  private async drawRows(parameters: Parameters, tids: number[], signal: AbortSignal): Promise<HTMLElement[]> {
    const { panel } = this.view.now;
    const found = panel === "events" ? await this.eventRows(parameters.from, parameters.to, tids, signal)
      : await get<PanelRows>("panel", { ...parameters, name: panel, ...(panel === "functions" ? { event: this.chosen[0] ?? "" } : {}) }, signal);
    const { grid } = found;
    const isEmpty = grid === undefined || grid.rows.length === 0;
    return [...(panel === "functions" ? this.eventChoice(false) : []), isEmpty ? make("pre", { class: "note" }, harmlessLines(found.error ?? "no rows")) : this.grid(grid, panel === "functions" ? this.codeLinks(grid) : {}),
      ...this.command(found.command, found.notes)];
  }

  /** Which sampled event is counted: one, or several side by side. Of a single one, there is no choice. */
  private eventChoice(several: boolean): HTMLElement[] {
    const { chosen } = this;
    const names = [...new Set([...this.sampled, ...chosen])];
    if (names.length < 2) return [];
    const choices = names.map((name) => {
      const isChosen = several ? chosen.includes(name) : chosen[0] === name;
      const one = button(harmless(name), several ? `Show or hide the column of ${harmless(name)}` : `Functions by ${harmless(name)}`, () => {
        const others = chosen.filter((other) => other !== name);
        this.view.change({ ev: !several ? [name] : !chosen.includes(name) ? [...chosen, name].slice(-MOST_EVENTS) : others.length > 0 ? others : chosen });
      });
      one.setAttribute("aria-pressed", String(isChosen));
      return one;
    });
    return [make("div", { class: "tabs", id: "sampled", role: "group", "aria-label": several ? "Events, side by side" : "Event" }, ...choices)];
  }

  /** The code of a function of the flame graph, by the event of its stacks. */
  private showFlameCode(name: string): void {
    const { of } = this.view.now;
    if (of !== "" && of !== "off_cpu") this.view.change({ ev: [of] });
    this.showCode(name, "");
  }

  /** A click at a function shows its code. */
  private codeLinks(grid: Grid): Record<string, { title: string; open: (row: Cell[]) => void }> {
    const place = (name: string) => grid.columns.findIndex((column) => column.name === name);
    const [code, module] = [place("function"), place("module")];
    return { function: { title: "Show its instructions and source lines", open: (row) => this.showCode(String(row[code] ?? ""), String(row[module] ?? "")) } };
  }

  private async drawFlame(parameters: Parameters, signal: AbortSignal): Promise<HTMLElement[]> {
    const { of } = this.view.now;
    const sources: [string, string][] = [["", "samples"], ["off_cpu", "time off the CPU"], ...this.events.map((event): [string, string] => [event, event])];
    if (!sources.some(([value]) => value === of)) sources.push([of, of]);
    const source = make("select", { "aria-label": "Stacks of", id: "of" }, ...sources.map(([value, name]) => make("option", { value }, harmless(name))));
    source.value = of;
    source.addEventListener("change", () => this.view.change({ of: source.value, zoom: [] }));
    const found = await get<FlameTree>("flame", { ...parameters, ...(of === "off_cpu" ? { of } : { event: of }) }, signal);
    const head = make("p", { class: "tools" }, source, this.flame.tools);
    if (found.error !== undefined) return [head, make("pre", { class: "note" }, harmlessLines(found.error)), ...this.command(found.command)];
    this.flame.set(found);
    return [head, this.flame.element, ...this.command(found.command, found.notes)];
  }

  private async drawComparison(range: [number, number], signal: AbortSignal): Promise<HTMLElement[]> {
    const tools = compareTools(this.view, range);
    const found = await compared(this.view, range, signal);
    if (found === null) return [tools];
    const { grid } = found;
    const isEmpty = grid === undefined || grid.rows.length === 0;
    return [tools, isEmpty ? make("pre", { class: "note" }, harmlessLines(found.error ?? "no rows")) : this.grid(grid), ...this.command(found.command, found.notes)];
  }

  private async drawCode(parameters: Parameters, signal: AbortSignal): Promise<HTMLElement[]> {
    const { code, module } = this.view.now;
    if (code === "") return [make("p", { class: "note" }, "Click a function in the panels functions or flame graph: its instructions and source lines are shown here.")];
    const found = await get<Code>("code", { ...parameters, function: code, module, event: this.chosen }, signal);
    const shown = found.lines === undefined ? make("pre", { class: "note" }, harmlessLines(found.error ?? "")) : codeLines(found.lines);
    const isCut = found.is_cut === true ? [make("p", { class: "note" }, "only the first 2 MB are shown")] : [];
    return [...this.eventChoice(true), make("h3", {}, harmless(code)), shown, ...isCut, ...this.command(found.command, found.notes)];
  }

  /** Events by type. */
  private async eventRows(from: number, to: number, tids: number[], signal: AbortSignal): Promise<PanelRows> {
    const start = BigInt(this.view.trace.start);
    const many = this.view.meta.traces.length > 1;
    const name = this.view.trace.name.replaceAll("'", "''");
    const text = `SELECT event, count(*) AS events FROM events WHERE time >= ${start + BigInt(from)} AND time < ${start + BigInt(to)}`
      + `${tids.length > 0 ? ` AND tid IN (${tids.join(", ")})` : ""}${many ? ` AND trace = '${name}'` : ""} GROUP BY event ORDER BY events DESC`;
    return { command: `perfquet-query sql ${this.view.meta.traces.map((trace) => shellWord(trace.path)).join(" ")} ${shellWord(text)}`, grid: await sql(text, 1000, signal) };
  }
}
