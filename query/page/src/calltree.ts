// Stacks as a tree of rows that open: callees from the root, or callers from the functions with the most weight of their own.

import type { Profile } from "./data.ts";
import { make } from "./dom.ts";
import { amount, percent, shortened } from "./format.ts";
import type { Boxes, Stacks } from "./stacks.ts";

/** Children of a row that are shown. */
const CHILDREN = 60;
/** A row opens by itself as long as one callee has this share of it. */
const FOLLOWED = 0.8;
const LETTERS = 110;

interface Row {
  name: string;
  weight: number;
  own: number;
  depth: number;
  /** Nodes, and the weight of each that counts; from the leaves, the nodes are those of the callers. */
  nodes: [number, number][];
  isOpen: boolean;
}

export class CallTree {
  readonly element = make("div", { class: "tree", role: "treegrid", tabindex: "0", "aria-label": "Call tree. Arrow keys move, open and close" });
  private rows: Row[] = [];
  private cursor = 0;
  private key: unknown[] = [];

  constructor(private readonly onOpenFunction: (name: string) => void) {
    this.element.addEventListener("keydown", (event) => this.press(event));
    this.element.addEventListener("click", (event) => {
      const line = (event.target as Element).closest<HTMLElement>("[data-row]");
      if (line === null) return;
      this.cursor = Number(line.dataset["row"]);
      this.toggle();
    });
    this.element.addEventListener("dblclick", (event) => {
      const line = (event.target as Element).closest<HTMLElement>("[data-row]");
      if (line !== null) this.onOpenFunction(this.rows[Number(line.dataset["row"])]!.name);
    });
  }

  private profile!: Profile;
  private stacks!: Stacks;
  private boxes!: Boxes;
  private isBottomUp = false;

  show(profile: Profile, stacks: Stacks, boxes: Boxes, isBottomUp: boolean): void {
    const key = [boxes, isBottomUp];
    if (this.key.every((part, index) => part === key[index]) && this.key.length > 0) return;
    this.key = key;
    Object.assign(this, { profile, stacks, boxes, isBottomUp });
    this.cursor = 0;
    this.rows = isBottomUp ? this.leaves() : this.callees({ name: "", weight: boxes.total[0]!, own: 0, depth: -1, nodes: [[0, boxes.total[0]!]], isOpen: true });
    for (let first = this.rows[0]; !isBottomUp && first !== undefined && !first.isOpen;) {
      const at: number = this.rows.indexOf(first);
      this.open(at);
      const next: Row | undefined = this.rows[at + 1];
      first = next !== undefined && next.depth > first.depth && next.weight >= FOLLOWED * first.weight ? next : undefined;
    }
    this.draw();
  }

  private name(node: number): string {
    const label = this.stacks.labelOf(node);
    return label === null ? "all" : label[0];
  }

  /** The functions by their own weight. */
  private leaves(): Row[] {
    const { own, label } = this.boxes;
    const byLabel = new Map<number, [number, number][]>();
    for (let node = 1; node < own.length; node++) {
      if (own[node]! <= 0) continue;
      const known = byLabel.get(label[node]!);
      if (known === undefined) byLabel.set(label[node]!, [[node, own[node]!]]);
      else known.push([node, own[node]!]);
    }
    return this.grouped([...byLabel.values()].flat(), 0, true);
  }

  private grouped(nodes: [number, number][], depth: number, isLeaf = false): Row[] {
    const found = new Map<string, Row>();
    for (const [node, weight] of nodes) {
      const name = this.name(node);
      let row = found.get(name);
      if (row === undefined) found.set(name, (row = { name, weight: 0, own: 0, depth, nodes: [], isOpen: false }));
      row.weight += weight;
      row.own += isLeaf ? weight : this.isBottomUp ? 0 : this.boxes.own[node]!;
      row.nodes.push([node, weight]);
    }
    return [...found.values()].sort((a, b) => b.weight - a.weight);
  }

  /** The rows below a row: its callees, or its callers. */
  private callees(row: Row): Row[] {
    const below: [number, number][] = [];
    for (const [node, weight] of row.nodes) {
      if (this.isBottomUp) {
        const caller = this.boxes.parent[node]!;
        if (caller > 0) below.push([caller, weight]);
      } else {
        for (const child of this.boxes.children(node, false)) {
          if (this.boxes.total[child]! > 0) below.push([child, this.boxes.total[child]!]);
        }
      }
    }
    return this.grouped(below, row.depth + 1);
  }

  private open(at: number): void {
    const row = this.rows[at]!;
    row.isOpen = true;
    this.rows.splice(at + 1, 0, ...this.callees(row).slice(0, CHILDREN));
  }

  private close(at: number): void {
    const row = this.rows[at]!;
    row.isOpen = false;
    let end = at + 1;
    while (end < this.rows.length && this.rows[end]!.depth > row.depth) end++;
    this.rows.splice(at + 1, end - at - 1);
  }

  private toggle(): void {
    const row = this.rows[this.cursor];
    if (row === undefined) return;
    if (row.isOpen) this.close(this.cursor);
    else this.open(this.cursor);
    this.draw();
  }

  private press(event: KeyboardEvent): void {
    const row = this.rows[this.cursor];
    if (row === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    switch (event.key) {
      case "ArrowDown": this.cursor = Math.min(this.rows.length - 1, this.cursor + 1); break;
      case "ArrowUp": this.cursor = Math.max(0, this.cursor - 1); break;
      case "ArrowRight": if (!row.isOpen) this.open(this.cursor); break;
      case "ArrowLeft":
        if (row.isOpen) this.close(this.cursor);
        else while (this.cursor > 0 && this.rows[this.cursor]!.depth >= row.depth) this.cursor--;
        break;
      case "Enter": this.toggle(); break;
      case "o": this.onOpenFunction(row.name); break;
      default: return;
    }
    event.preventDefault();
    this.draw();
  }

  private draw(): void {
    const all = this.boxes.total[0]!;
    const lines = this.rows.slice(0, 2000).map((row, index) => {
      const mark = row.isOpen ? "▾" : "▸";
      const name = make("span", { class: "name" }, `${mark} ${shortened(row.name, LETTERS)}`);
      name.style.paddingLeft = `${Math.min(row.depth, 60) * 12}px`;
      const line = make("div", {
        role: "row", "data-row": String(index), "aria-level": String(row.depth + 1), "aria-expanded": String(row.isOpen), title: row.name,
        ...(index === this.cursor ? { class: "cursor", "aria-selected": "true" } : {}),
      }, make("span", {}, percent(row.weight, all)), make("span", {}, amount(Math.round(row.weight), this.profile.unit)),
      make("span", {}, row.own > 0 ? percent(row.own, all) : ""), name);
      return line;
    });
    const head = make("div", { class: "head", role: "row" }, make("span", {}, "total"), make("span", {}, ""), make("span", {}, "self"),
      make("span", { class: "name" }, this.isBottomUp ? "function, and below it its callers" : "function, and below it its callees"));
    this.element.replaceChildren(head, ...lines);
    this.element.querySelector(".cursor")?.scrollIntoView({ block: "nearest" });
  }
}
