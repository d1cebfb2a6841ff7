// Completion of SQL: tables and views, their columns, functions with what they do, keywords.

import { make } from "../dom.ts";
import { cut, harmless } from "../format.ts";

export interface Library {
  /** Columns: name, type, unit, meaning. */
  tables: { name: string; usage: string; about: string; is_view: boolean; columns: [string, string, string, string][] }[];
  /** Usage and meaning. */
  functions: [string, string][];
}

export interface Candidate {
  /** What is inserted. */
  text: string;
  kind: string;
  about: string;
}

const KEYWORDS = ["SELECT", "DISTINCT", "FROM", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "OFFSET", "JOIN", "LEFT JOIN", "CROSS JOIN", "ON", "USING", "AS", "AND", "OR", "NOT", "IN",
  "IS NULL", "IS NOT NULL", "BETWEEN", "LIKE", "ILIKE", "CASE", "WHEN", "THEN", "ELSE", "END", "WITH", "UNION ALL", "OVER", "PARTITION BY", "DESC", "ASC", "FILTER", "CAST", "count(*)"];
const MOST = 40;

/** The word before the cursor, and what it may become. */
export function candidates(library: Library, text: string, caret: number): { start: number; all: Candidate[] } {
  const before = text.slice(0, caret);
  const word = /[\w.":]*$/.exec(before)![0];
  const start = caret - word.length;
  const lower = word.toLowerCase();
  const fits = (name: string, part = lower) => name.toLowerCase().startsWith(part) && name.toLowerCase() !== part;
  const tables = library.tables.filter(({ name }) => fits(name) || fits(name.split(".").pop()!))
    .map(({ name, usage, about, is_view: isView }): Candidate => ({ text: usage.includes("(") ? `${name}(` : name, kind: usage.includes("(") ? usage : isView ? "view" : "table", about }));
  // Columns of a table or of its alias.
  const dot = word.lastIndexOf(".");
  const named = library.tables.filter(({ name }) => new RegExp(`(^|[^\\w.])${name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}([^\\w.]|$)`, "iu").test(text));
  const column = ([name, type, unit, about]: [string, string, string, string], prefix = ""): Candidate =>
    ({ text: `${prefix}${/^\w+$/.test(name) ? name : `"${name}"`}`, kind: [type, unit].filter((one) => one !== "").join(", "), about });
  if (dot > 0) {
    const owner = word.slice(0, dot);
    const alias = new RegExp(`([\\w."]+)\\s+(?:AS\\s+)?${owner.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}\\b`, "iu").exec(text)?.[1];
    const of = library.tables.find(({ name }) => name === owner) ?? library.tables.find(({ name }) => name === alias);
    const part = word.slice(dot + 1).toLowerCase();
    if (of !== undefined) return { start, all: of.columns.filter(([name]) => fits(name, part)).slice(0, MOST).map((one) => column(one, `${owner}.`)) };
  }
  if (/\b(from|join)\s+$/i.test(before.slice(0, start))) return { start, all: tables.slice(0, MOST) };
  const columns = new Map<string, Candidate>();
  for (const table of named.length > 0 ? named : library.tables) {
    for (const one of table.columns) if (fits(one[0]) && !columns.has(one[0])) columns.set(one[0], column(one));
  }
  if (word === "") return { start, all: named.length > 0 ? [...columns.values()].slice(0, MOST) : [] };
  const functions = library.functions.filter(([usage]) => fits(usage.split("(")[0]!))
    // Those that are described come first.
    .sort((a, b) => Number(a[1] === "") - Number(b[1] === ""))
    .map(([usage, about]): Candidate => ({ text: `${usage.split("(")[0]}(`, kind: usage, about }));
  const keywords = KEYWORDS.filter((one) => fits(one)).map((one): Candidate => ({ text: word === lower ? one.toLowerCase() : one, kind: "", about: "" }));
  return { start, all: [...columns.values(), ...tables, ...functions, ...keywords].slice(0, MOST) };
}

/** A list below an editor: arrows choose, Tab or Enter take, Escape closes. */
export class Completion {
  readonly element = make("ul", { id: "completion", role: "listbox", "aria-label": "Completions", hidden: "" });
  library: Library | null = null;
  private found: { start: number; all: Candidate[] } = { start: 0, all: [] };
  private chosen = -1;

  constructor(private readonly editor: HTMLTextAreaElement) {
    editor.setAttribute("role", "combobox");
    editor.setAttribute("aria-autocomplete", "list");
    editor.setAttribute("aria-controls", "completion");
    editor.setAttribute("aria-expanded", "false");
    editor.addEventListener("input", () => this.open(false));
    editor.addEventListener("blur", () => this.close());
    editor.addEventListener("click", () => this.close());
  }

  set(library: Library): void {
    this.library = library;
    this.element.dataset["ready"] = "";
  }

  get isOpen(): boolean {
    return !this.element.hidden;
  }

  /** Whether a key was for the list. */
  key(event: KeyboardEvent): boolean {
    if (event.key === " " && event.ctrlKey) this.open(true);
    else if (!this.isOpen || event.ctrlKey || event.metaKey) return false;
    else if (event.key === "ArrowDown") this.choose(this.chosen + 1);
    else if (event.key === "ArrowUp") this.choose(this.chosen - 1);
    else if (event.key === "Tab" || (event.key === "Enter" && this.chosen >= 0)) this.take(Math.max(0, this.chosen));
    else if (event.key === "Escape") this.close();
    else return false;
    return true;
  }

  private open(isWanted: boolean): void {
    const { selectionStart: caret, value } = this.editor;
    this.found = this.library === null ? { start: 0, all: [] } : candidates(this.library, value, caret);
    const isShort = caret - this.found.start < 1;
    if (this.found.all.length === 0 || (isShort && !isWanted && !/\b(from|join)\s$/i.test(value.slice(0, caret)))) {
      this.close();
      return;
    }
    this.chosen = -1;
    this.element.replaceChildren(...this.found.all.map(({ text, kind, about }, index) => {
      const item = make("li", { role: "option", id: `completion-${index}` }, make("code", {}, harmless(text)), make("span", { class: "quiet" }, harmless(kind)), make("span", { class: "about" }, harmless(cut(about, 160))));
      // The editor keeps the focus.
      item.addEventListener("mousedown", (event) => {
        event.preventDefault();
        this.take(index);
      });
      return item;
    }));
    this.element.hidden = false;
    this.editor.setAttribute("aria-expanded", "true");
    this.editor.removeAttribute("aria-activedescendant");
  }

  private choose(index: number): void {
    const items = [...this.element.children];
    this.chosen = (index + items.length) % items.length;
    items.forEach((item, place) => item.setAttribute("aria-selected", String(place === this.chosen)));
    items[this.chosen]?.scrollIntoView({ block: "nearest" });
    this.editor.setAttribute("aria-activedescendant", `completion-${this.chosen}`);
  }

  private take(index: number): void {
    const candidate = this.found.all[index];
    if (candidate !== undefined) this.editor.setRangeText(candidate.text, this.found.start, this.editor.selectionStart, "end");
    this.close();
  }

  close(): void {
    this.element.hidden = true;
    this.editor.setAttribute("aria-expanded", "false");
    this.editor.removeAttribute("aria-activedescendant");
  }
}
