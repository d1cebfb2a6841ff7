// The SQL panel: an editor with completion, the rows as a table or a chart, saved queries.

import { type Tip, button, commandLine, make } from "../dom.ts";
import { harmless, shellWord } from "../format.ts";
import { type Grid, get, isCanceled, message, sql } from "./api.ts";
import { Chart, type ChartKind, chartsOf, treeOf } from "./chart.ts";
import { Completion, type Library } from "./complete.ts";
import { FlameView } from "./flame.ts";
import type { View } from "./view.ts";

const EXAMPLE = "SELECT event, count(*) AS events FROM events GROUP BY event ORDER BY 2 DESC";
/** Rows of a query. */
const ROWS = 10_000;
/** Where the browser keeps saved queries: for this address, which includes the port. */
const STORE = "perfquet-queries";
const MOST_SAVED = 100;

/** Saved queries by name. What is no such list is ignored. */
function saved(): Record<string, string> {
  try {
    const found: unknown = JSON.parse(localStorage.getItem(STORE) ?? "{}");
    if (typeof found !== "object" || found === null) return {};
    return Object.fromEntries(Object.entries(found).filter((entry): entry is [string, string] => typeof entry[1] === "string").slice(0, MOST_SAVED));
  } catch {
    return {};
  }
}

export class SqlPanel {
  private readonly editor = make("textarea", { id: "sql", spellcheck: "false", rows: "4", "aria-label": "SQL" });
  private readonly answer = make("div", { id: "answer", "aria-live": "polite" });
  private readonly completion = new Completion(this.editor);
  private readonly list = make("select", { "aria-label": "Saved queries", id: "saved" });
  private readonly name = make("input", { type: "text", placeholder: "name", "aria-label": "Name to save the query under", id: "save-name", maxlength: "60" });
  private readonly flame: FlameView;
  private grid: Grid | null = null;
  private drawn: (() => void) | null = null;
  private shownChart = "";
  /** The query that was run last. */
  private ran = "";

  constructor(private readonly view: View, private readonly tip: Tip, private readonly begin: () => AbortSignal, private readonly table: (grid: Grid) => HTMLElement, onCode: (name: string) => void) {
    this.flame = new FlameView(view, tip, onCode);
    this.editor.addEventListener("keydown", (event) => {
      event.stopPropagation();
      if (this.completion.key(event)) event.preventDefault();
      else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        void this.run();
      } else if (event.key === "Escape") this.editor.blur();
    });
    this.list.addEventListener("change", () => {
      const text = saved()[this.list.value];
      if (text === undefined) return;
      this.name.value = this.list.value;
      this.editor.value = text;
      void this.run();
    });
    this.name.addEventListener("keydown", (event) => {
      event.stopPropagation();
      if (event.key === "Enter") this.save();
      if (event.key === "Escape") this.name.blur();
    });
  }

  show(body: HTMLElement): void {
    this.begin();
    this.editor.value = this.view.now.sql === "" ? EXAMPLE : this.view.now.sql;
    this.drawSaved();
    body.replaceChildren(make("div", { class: "editor" }, this.editor, this.completion.element), make("p", { class: "tools" }, button("Run", "Run (Ctrl+Enter)", () => void this.run()),
      button("Cancel", "End the query", () => this.begin()),
      button("Tables", "List tables and views", () => {
        this.editor.value = "SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = 'main' ORDER BY 1, 2";
        void this.run();
      }), this.list, this.name, button("Save", "Save the query in this browser, for this address", () => this.save()), button("Delete", "Delete the saved query of this name", () => this.remove()),
      make("span", { class: "quiet" }, "Ctrl+Enter runs it, Ctrl+Space completes; times lead to the timeline")), this.answer);
    if (this.completion.library === null) get<Library>("library", {}).then((library) => this.completion.set(library), () => {});
    if (this.view.now.sql !== "") void this.run();
    else this.editor.focus();
  }

  /** Follows the address, and the colors. */
  update(): void {
    const { sql: text } = this.view.now;
    if (text !== "" && text !== this.ran) {
      this.editor.value = text;
      void this.run();
      return;
    }
    if (this.grid !== null && this.shownChart !== this.view.now.chart) this.showGrid();
    else this.drawn?.();
  }

  private drawSaved(): void {
    this.list.replaceChildren(make("option", { value: "" }, "saved queries…"), ...Object.keys(saved()).sort().map((name) => make("option", { value: name }, harmless(name))));
    this.list.value = "";
  }

  private store(all: Record<string, string>): void {
    try {
      localStorage.setItem(STORE, JSON.stringify(all));
    } catch (error) {
      this.answer.replaceChildren(make("p", { class: "bad" }, `not saved: ${message(error)}`));
    }
    this.drawSaved();
  }

  private save(): void {
    const name = this.name.value.trim();
    if (name === "") this.name.focus();
    else this.store({ ...saved(), [name]: this.editor.value });
  }

  private remove(): void {
    const { [this.name.value.trim()]: _, ...rest } = saved();
    this.store(rest);
  }

  private async run(): Promise<void> {
    this.completion.close();
    const signal = this.begin();
    const text = this.editor.value;
    this.ran = text;
    this.view.change({ sql: text });
    this.grid = null;
    this.answer.replaceChildren(make("p", { class: "note" }, "running…"));
    const begin = performance.now();
    try {
      this.grid = await sql(text, ROWS, signal);
      const command = commandLine(() => `perfquet-query sql ${this.view.meta.traces.map((trace) => shellWord(trace.path)).join(" ")} ${shellWord(text)}`);
      command.update();
      this.answer.replaceChildren(make("div", { id: "result" }), make("p", { class: "note" }, `${((performance.now() - begin) / 1000).toFixed(2)} s`), command.element);
      this.showGrid();
    } catch (error) {
      this.answer.replaceChildren(isCanceled(error) ? make("p", { class: "note" }, "canceled") : make("pre", { class: "bad" }, message(error)));
    }
  }

  /** The rows as a table, or as the chart of the address if they can be one. */
  private showGrid(): void {
    const { grid } = this;
    const place = this.answer.querySelector("#result");
    if (grid === null || place === null) return;
    const kinds = chartsOf(grid);
    const { chart } = this.view.now;
    this.shownChart = chart;
    const shown = kinds.find((kind) => kind === chart);
    const choice = make("div", { class: "tabs", role: "group", "aria-label": "Show the rows as" }, ...["table", ...kinds].map((name) => {
      const one = button(name, `Show the rows as ${name}`, () => this.view.change({ chart: name === "table" ? "" : name, zoom: [] }));
      one.setAttribute("aria-pressed", String(name === (shown ?? "table")));
      return one;
    }));
    place.replaceChildren(...(kinds.length > 0 ? [choice] : []), this.picture(grid, shown));
    this.drawn?.();
  }

  private picture(grid: Grid, kind: ChartKind | undefined): HTMLElement {
    this.drawn = null;
    if (kind === undefined) return this.table(grid);
    if (kind === "flame graph") {
      this.flame.set(treeOf(grid));
      this.drawn = () => this.flame.draw();
      return make("div", {}, make("p", { class: "tools" }, this.flame.tools), this.flame.element);
    }
    const chart = new Chart(grid, kind, BigInt(this.view.trace.start), this.tip);
    this.drawn = () => chart.draw();
    return chart.element;
  }
}
