// The flame graph of the selection: an icicle on a canvas. A click zooms to a frame, one at a caller zooms out.

import { Canvas, type Tip, button, color, make } from "../dom.ts";
import { amount, grouped, harmless, pattern, percent, shortened } from "../format.ts";
import { type Box, type Part, placed } from "../layout.ts";
import { type Boxes, childLists } from "../stacks.ts";
import type { FlameTree } from "./api.ts";
import { nameNumber, paletteColor } from "./palette.ts";
import type { View } from "./view.ts";

const LEVEL = 18;
const FONT = "12px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace";
/** Pixels: a canvas that is higher is not drawn. */
const HIGHEST = 12_000;

export class FlameView {
  readonly tools = make("span", { class: "tools" });
  private readonly canvas = new Canvas("Flame graph, root at the top. Arrow keys move, Enter zooms, Escape goes back, c shows the code", 200);
  private readonly status = make("p", { class: "status", "aria-live": "polite", id: "frame" });
  readonly element = make("div", { id: "flame" }, this.status, this.canvas.element);
  private tree: FlameTree | null = null;
  private boxes: Boxes | null = null;
  private part: Part | null = null;
  private cursor = 0;
  private readonly code = button("Code", "Instructions and source lines of the marked function (c)", () => this.showCode());
  private readonly reset = button("All", "Zoom out", () => this.zoomTo(0));

  constructor(private readonly view: View, private readonly tip: Tip, private readonly onCode: (name: string) => void) {
    this.tools.append(this.reset, this.code);
    this.listen();
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  set(tree: FlameTree): void {
    this.tree = tree;
    const parent = Int32Array.from(tree.parent);
    const total = Float64Array.from(tree.total);
    const { names } = tree;
    const name = (node: number) => names[tree.label[node]!] ?? "";
    this.boxes = {
      parent, label: Int32Array.from(tree.label), own: Float64Array.from(tree.own), total, ownBefore: null, before: null,
      // As in the pictures: by name, so that two selections look alike.
      children: childLists(parent, (a, b) => (name(a) < name(b) ? -1 : name(a) > name(b) ? 1 : 0)),
    };
    this.cursor = this.zoomed();
  }

  /** The node at the path of the view, as far as it exists. */
  private zoomed(): number {
    const { boxes, tree } = this;
    if (boxes === null || tree === null) return 0;
    let node = 0;
    for (const frame of this.view.now.zoom) {
      const next = [...boxes.children(node)].find((child) => tree.names[tree.label[child]!] === frame);
      if (next === undefined) break;
      node = next;
    }
    return node;
  }

  private path(node: number): string[] {
    const frames: string[] = [];
    for (let at = node; at > 0; at = this.boxes!.parent[at]!) frames.unshift(this.name(at));
    return frames;
  }

  private name(node: number): string {
    return node === 0 ? "all" : this.tree!.names[this.tree!.label[node]!]!;
  }

  private zoomTo(node: number): void {
    this.cursor = node;
    this.view.change({ zoom: this.path(node) });
  }

  private showCode(): void {
    if (this.cursor > 0) this.onCode(this.name(this.cursor));
  }

  private facts(box: Box): string[] {
    const { total, own } = this.boxes!;
    if (box.frames > 1) return [`${grouped(box.frames)} narrow frames: zoom in`];
    const unit = this.tree!.unit;
    const of = (weight: number) => `${unit === "" ? grouped(weight) : amount(weight, unit)}, ${percent(weight, total[0]!)}`;
    return [harmless(this.name(box.node)), of(total[box.node]!), `self ${of(own[box.node]!)}`];
  }

  private at(event: MouseEvent): Box | null {
    const [x, y] = this.canvas.place(event);
    return this.part?.levels[Math.floor(y / LEVEL)]?.find((box) => x >= box.x && x < box.x + box.width) ?? null;
  }

  private boxOf(node: number): Box | undefined {
    for (const row of this.part?.levels ?? []) {
      const found = row.find((box) => box.node === node && box.frames === 1);
      if (found !== undefined) return found;
    }
    return undefined;
  }

  private listen(): void {
    const { element } = this.canvas;
    this.tip.follow(element, (event) => this.at(event), (box) => this.facts(box));
    element.addEventListener("click", (event) => {
      const box = this.at(event);
      this.tip.hide();
      // Of several narrow frames, the caller becomes wide.
      if (box !== null) this.zoomTo(box.frames > 1 ? this.boxes!.parent[box.node]! : box.node);
    });
    element.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || this.part === null) return;
      const { parent } = this.boxes!;
      const at = this.boxOf(this.cursor);
      const row = at === undefined ? [] : this.part.levels[at.level]!.filter((box) => box.frames === 1);
      const place = row.findIndex((box) => box.node === this.cursor);
      const below = at === undefined ? undefined : (this.part.levels[at.level + 1] ?? []).filter((box) => box.frames === 1 && parent[box.node] === at.node).sort((a, b) => b.width - a.width)[0];
      const moves: Record<string, number | undefined> = {
        ArrowUp: this.cursor > 0 ? parent[this.cursor] : undefined, ArrowDown: below?.node, ArrowLeft: row[place - 1]?.node, ArrowRight: row[place + 1]?.node,
      };
      if (event.key in moves) {
        this.cursor = moves[event.key] ?? this.cursor;
        this.draw();
      } else if (event.key === "Enter") this.zoomTo(this.cursor);
      else if (event.key === "c") this.showCode();
      else if (event.key === "Escape" && this.view.now.zoom.length > 0) this.zoomTo(parent[this.zoomed()]!);
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    element.addEventListener("focus", () => this.draw());
    element.addEventListener("blur", () => this.draw());
  }

  draw(): void {
    const { canvas, boxes, tree } = this;
    canvas.width = canvas.element.clientWidth;
    if (boxes === null || tree === null || canvas.width === 0) return;
    const zoom = this.zoomed();
    this.part = placed(0, boxes, zoom, canvas.width, true, false);
    const { levels, isCut } = this.part;
    canvas.fit(Math.min(HIGHEST, Math.max(1, levels.length) * LEVEL));
    const { context } = canvas;
    context.font = FONT;
    context.textBaseline = "middle";
    const letter = context.measureText("m").width;
    const expression = pattern(this.view.now.filter);
    const [band, hit] = [color("band"), color("hit")];
    const names: [string, number, number, number][] = [];
    levels.forEach((row, level) => {
      const isCaller = level < levels.findIndex((one) => one[0]!.node === zoom);
      for (const box of row) {
        const name = this.name(box.node);
        const isHit = expression !== null && box.frames === 1 && box.node > 0 && expression.test(name);
        context.globalAlpha = isCaller ? 0.55 : 1;
        context.fillStyle = isHit ? hit : box.frames > 1 || box.node === 0 ? band : paletteColor(nameNumber(name));
        context.fillRect(box.x, level * LEVEL, box.width > 3 ? box.width - 0.7 : box.width, LEVEL - 1);
        const letters = Math.floor((box.width - 6) / letter);
        if (letters >= 3 && box.frames === 1) names.push([shortened(harmless(name), letters), box.x, level * LEVEL, letters * letter]);
      }
    });
    context.globalAlpha = 1;
    context.fillStyle = color("box-ink");
    for (const [name, x, y, wide] of names) context.fillText(name, x + 4, y + LEVEL / 2, wide);
    const marked = this.boxOf(this.cursor);
    if (marked !== undefined && (this.cursor > 0 || document.activeElement === canvas.element)) {
      context.strokeStyle = color("focus");
      context.lineWidth = 2;
      context.strokeRect(marked.x + 1, marked.level * LEVEL + 1, Math.max(1, marked.width - 3), LEVEL - 3);
    }
    this.code.disabled = this.cursor === 0;
    this.reset.disabled = zoom === 0;
    const notes = [...(marked === undefined ? [] : this.facts(marked)),
      ...(tree.omitted > 0 ? [`${grouped(tree.omitted)} of the lightest frames are not drawn`] : []), ...(tree.is_cut ? ["too many stacks: not all are counted"] : []),
      ...(isCut ? ["deeper frames are narrow: zoom in"] : []), ...(boxes.total[0] === 0 ? ["no stacks here"] : [])].join(" · ");
    if (this.status.textContent !== notes) this.status.textContent = notes;
  }
}
