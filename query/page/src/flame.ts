// Stacks as boxes on a canvas: flame graph, icicle, and a function between its callers and callees.

import type { Data, Label, Profile } from "./data.ts";
import { CallTree } from "./calltree.ts";
import { Canvas, Tip, button, color, commandLine, isDark, legendEntry, make, panel, pictureButton } from "./dom.ts";
import { amount, counted, cut, percent, shortened } from "./format.ts";
import { type Box, LEAST, LEAST_LEVEL, type Part, placed } from "./layout.ts";
import { type Boxes, type Stacks, type TimedBoxes, wholeTrace } from "./stacks.ts";
import { readableRange, type State, VIEWS, type View } from "./state.ts";

const LEVEL = 18;
const FONT = "12px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace";
/** Pixels: pictures of stacks are no higher; what is above scrolls. */
const HIGHEST = 540;
/** Pixels: a canvas that is higher is not drawn. */
const HIGHEST_CANVAS = 15_000;
const SHADES = [1, 0.88, 0.76, 0.64];

export class Flame {
  private readonly panel = panel("stacks", "Stacks");
  readonly element = this.panel.element;
  private readonly canvas = new Canvas("Stacks. Arrow keys move, Enter zooms, Escape goes back", 200);
  private readonly scroller = make("div", { class: "scroller" }, this.canvas.element);
  private readonly tree = new CallTree((focus) => this.state.change({ view: "sandwich", focus }));
  private scrolled = "";
  private readonly status = make("p", { class: "status", "aria-live": "polite" });
  private readonly legend = make("p", { class: "legend" });
  private readonly tabs = make("div", { class: "tabs", role: "group", "aria-label": "Event" });
  private readonly views = make("div", { class: "tabs", role: "group", "aria-label": "View" });
  private readonly command = commandLine(() => this.commandText());
  private readonly fold: HTMLButtonElement;
  private byModule = false;
  private lastTimed: { key: string; boxes: TimedBoxes } | null = null;
  private parts: Part[] = [];
  /** What the picture was last made for. */
  private lastKey = "";
  private lastBoxes: Boxes | null = null;
  private lastHeight = { key: "", height: 0 };
  private lastLegend = "";
  private cursor: { part: number; node: number } | null = null;
  /** Sums of the picture, which zooming does not change. */
  private known: { boxes: Boxes; query: string; hits: boolean[]; matched: number; isByModule: boolean; modules: Map<number, number>; legend: Map<number, number> } | null = null;

  constructor(private readonly data: Data, private readonly state: State, private readonly stacks: Stacks[], private readonly tip: Tip) {
    const { body, tools } = this.panel;
    data.profiles.forEach((profile, index) => {
      this.tabs.append(button(profile.name, `Show ${profile.name}`, () => state.change({ profile: index, zoom: 0, focus: null })));
    });
    for (const view of VIEWS) {
      const titles = {
        flame: "Root at the bottom", icicle: "Root at the top", sandwich: "Callers and callees of one function",
        "time order": "Stacks from left to right in the order of time; select a thread",
        "top-down": "Call tree from the root", "bottom-up": "Call tree from the functions with the most weight of their own",
      };
      this.views.append(button(view, titles[view], () => this.show(view)));
    }
    const module = button("by module", "Colors stand for modules", () => {
      this.byModule = !this.byModule;
      module.setAttribute("aria-pressed", String(this.byModule));
      this.draw();
    });
    const fold = button("fold recursion", "A function that calls itself is one box", () => state.change({ isFolded: !state.selection.isFolded, zoom: 0 }));
    this.fold = fold;
    tools.append(this.tabs, this.views, make("div", { class: "tabs" }, module, fold), pictureButton("stacks", this.canvas));
    this.scroller.style.height = `${Math.min(HIGHEST, Math.max(60, (Math.max(...stacks.map((one) => one.depth())) + 1) * LEVEL + 12))}px`;
    body.append(this.legend, this.scroller, this.status, this.command.element);
    this.listen();
  }

  private get profile(): Profile {
    return this.data.profiles[this.state.selection.profile]!;
  }

  private get stack(): Stacks {
    return this.stacks[this.state.selection.profile]!;
  }

  private show(view: View): void {
    const { focus } = this.state.selection;
    if (view !== "sandwich") {
      this.state.change({ view });
      return;
    }
    const { boxes } = this.stack.selected(this.state);
    const hottest = () => [...this.stack.functions(boxes)].sort((a, b) => b.own - a.own)[0]?.name ?? null;
    this.state.change({ view, focus: focus ?? hottest() });
  }

  /** The view; without times, stacks have no order of time. */
  private get view(): View {
    const { view } = this.state.selection;
    return view === "time order" && (this.profile.cells === null || this.profile.is_off_cpu) ? "icicle" : view;
  }

  /** The boxes in the order of time of the selection. */
  private timed(): TimedBoxes {
    const { time, threads, profile } = this.state.selection;
    const key = JSON.stringify([time, [...threads], profile, this.canvas.width]);
    if (this.lastTimed?.key !== key) {
      const columns = Math.max(20, Math.floor(this.canvas.width / 3));
      this.lastTimed = { key, boxes: this.stack.inTime(this.state, columns, LEAST / Math.max(1, this.canvas.width)) };
    }
    return this.lastTimed.boxes;
  }

  private commandText(): string {
    const { focus } = this.state.selection;
    const { view } = this;
    const more = view === "icicle" ? ["--icicle"] : view === "sandwich" || view === "bottom-up" ? ["--reverse"] : [];
    void focus;
    // A query selects by its own conditions.
    const isSelectable = this.profile.cells !== null && !this.profile.is_off_cpu;
    return this.state.command(this.profile.flamegraph, { more: [...(this.profile.is_off_cpu && view === "sandwich" ? [] : more), "-o", "flame.svg"], time: isSelectable, threads: isSelectable, trace: this.profile.trace });
  }

  private listen(): void {
    const { element } = this.canvas;
    this.tip.follow(element, (event) => this.at(event), (box) => this.facts(box));
    element.addEventListener("click", (event) => {
      const box = this.at(event);
      if (box === null) return;
      this.cursor = { part: box.part, node: box.node };
      this.enter(box);
    });
    element.addEventListener("keydown", (event) => this.key(event));
  }

  /** Zooms to a box; in the sandwich, its function becomes the middle; in the order of time, its time is selected. */
  private enter(box: Box): void {
    const { node } = box;
    const { view } = this;
    if (view === "time order") {
      const { from, to } = this.timed();
      this.cursor = null;
      this.state.change({ time: [from[node]!, to[node]!] });
    } else if (view === "sandwich") {
      const label = this.labelIn(box);
      if (label !== null) this.state.change({ focus: label[0] });
    } else {
      // Of several narrow frames, the caller becomes wide.
      const target = box.frames > 1 || node === this.state.selection.zoom ? this.parts[box.part]!.boxes.parent[node]! : node;
      this.state.change({ zoom: target });
    }
  }

  private key(event: KeyboardEvent): void {
    const { zoom, view } = this.state.selection;
    const at = this.atCursor() ?? this.parts[0]?.levels[0]?.[0];
    if (at === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    const part = this.parts[at.part]!;
    const to = (box: Box | undefined) => {
      event.preventDefault();
      if (box === undefined) return;
      this.cursor = { part: box.part, node: box.node };
      this.status.textContent = this.facts(box).join(" · ");
      this.draw();
    };
    const outwards = () => to((part.levels[at.level + 1] ?? []).filter((box) => part.boxes.parent[box.node] === at.node).sort((a, b) => b.width - a.width)[0]);
    const inwards = () => to(part.levels[at.level - 1]?.find((box) => box.node === part.boxes.parent[at.node]));
    const siblings = part.levels[at.level]!;
    const place = siblings.indexOf(at);
    switch (event.key) {
      case "ArrowUp": part.down ? inwards() : outwards(); break;
      case "ArrowDown": part.down ? outwards() : inwards(); break;
      case "ArrowLeft": to(siblings[place - 1]); break;
      case "ArrowRight": to(siblings[place + 1]); break;
      case "Enter": event.preventDefault(); this.enter(at); break;
      case "o": {
        const label = this.labelIn(at);
        if (label !== null) this.state.change({ view: "sandwich", focus: label[0] });
        break;
      }
      case "Escape":
        if (view === "sandwich") this.state.change({ view: "icicle" });
        else if (zoom > 0) this.state.change({ zoom: part.boxes.parent[zoom]! });
        else return;
        event.stopPropagation();
    }
  }

  private atCursor(): Box | undefined {
    const { cursor } = this;
    if (cursor === null) return undefined;
    for (const row of this.parts[cursor.part]?.levels ?? []) {
      const found = row.find((box) => box.node === cursor.node);
      if (found !== undefined) return found;
    }
    return undefined;
  }

  private at(event: MouseEvent): Box | null {
    const [x, y] = this.canvas.place(event);
    for (const part of this.parts) {
      const place = Math.floor((y - part.top) / LEVEL);
      const row = part.levels[part.down ? place : part.levels.length - 1 - place] ?? [];
      let [low, high] = [0, row.length - 1];
      while (low <= high) {
        const middle = (low + high) >> 1;
        const box = row[middle]!;
        if (x < box.x) high = middle - 1;
        else if (x >= box.x + box.width) low = middle + 1;
        else return box;
      }
    }
    return null;
  }

  private labelIn({ part, node }: Box): Label | null {
    const index = this.parts[part]!.boxes.label[node]!;
    return index < 0 ? null : this.profile.labels[index]!;
  }

  private facts(box: Box): string[] {
    const profile = this.profile;
    const { boxes } = this.parts[box.part]!;
    const root = this.drawn();
    if (box.frames > 1) {
      const siblings = boxes.children(boxes.parent[box.node]!);
      const first = siblings.indexOf(box.node);
      const weight = siblings.subarray(first, first + box.frames).reduce((sum, node) => sum + boxes.total[node]!, 0);
      return [`${counted(box.frames, "frame")}, each narrower than a pixel`, `${amount(weight, profile.unit)}, ${percent(weight, root.total[0]!)}`];
    }
    const label = this.labelIn(box);
    const name = label?.[0] ?? "all";
    const lines = [name.length > 600 ? cut(name, 600) : name];
    if (label !== null) {
      const kind = this.data.colors.names[label[1]] ?? "";
      const module = label[2] === null ? null : profile.modules[label[2]]!;
      if (module !== null) lines.push(`${kind}: ${module}`);
      if (label[3] !== null) lines.push(label[3]);
    }
    const [total, all] = [boxes.total[box.node]!, root.total[0]!];
    lines.push(`${amount(total, profile.unit)}, ${percent(total, all)}`);
    if (this.view === "time order") {
      const { from, to } = this.timed();
      lines.push(`from ${readableRange(from[box.node]! * this.state.slot, to[box.node]! * this.state.slot)}`);
    }
    const own = boxes.own[box.node]!;
    if (own > 0 && own < total && this.state.selection.view !== "sandwich") lines.push(`self ${amount(own, profile.unit)}, ${percent(own, all)}`);
    if (boxes.before !== null && root.before !== null) {
      const [then, allThen] = [boxes.before[box.node]!, root.before[0]!];
      const points = (total / Math.max(1, all) - then / Math.max(1, allThen)) * 100;
      lines.push(`before: ${amount(then, profile.unit)}, ${percent(then, allThen)}`);
      lines.push(`change: ${points > 0 ? "+" : ""}${points.toFixed(2)} percentage points${this.stack.isNoise(total / Math.max(1, all), then / Math.max(1, allThen)) ? ", within noise" : ""}`);
    }
    return lines;
  }

  update(): void {
    const { selection } = this.state;
    const press = (group: HTMLElement, chosen: number) =>
      [...group.children].forEach((child, index) => child.setAttribute("aria-pressed", String(index === chosen)));
    press(this.tabs, selection.profile);
    press(this.views, VIEWS.indexOf(this.view));
    const inTime = this.views.children[VIEWS.indexOf("time order")];
    if (inTime instanceof HTMLButtonElement) inTime.disabled = this.profile.cells === null || this.profile.is_off_cpu;
    this.fold.setAttribute("aria-pressed", String(selection.isFolded));
    const isTree = this.view === "top-down" || this.view === "bottom-up";
    const place = isTree ? this.tree.element : this.canvas.element;
    if (this.scroller.firstChild !== place) this.scroller.replaceChildren(place);
    const { boxes, samples } = this.stack.selected(this.state);
    const profile = this.profile;
    const all = boxes.total[0]!;
    const text = profile.kind === "event"
      ? profile.is_off_cpu ? `${amount(Math.round(all), profile.unit)} in ${counted(samples, "period")}${selection.time === null ? "" : " that began in this time"}`
        : profile.is_count ? amount(all, profile.unit) : `${counted(samples, "sample")}, ${amount(all, profile.unit)}`
      : profile.subtitle ?? amount(all, profile.unit);
    const order = this.view === "time order" && selection.threads.size !== 1 && this.data.threads.length > 1
      ? ["threads that run at a time share the width: select one to see its order"] : [];
    const untimed = wholeTrace(profile, selection);
    const base = selection.base !== null && profile.cells !== null
      ? [`colors and changes: against ${readableRange(selection.base[0] * this.state.slot, selection.base[1] * this.state.slot)}, in shares`] : [];
    this.panel.note.replaceChildren(...[text, ...profile.notes, ...this.stack.incomplete(this.state), ...order, ...untimed, ...base].map((line) => make("span", {}, line)));
    this.command.update();
    this.draw();
  }

  /** Zooming changes nothing but the picture. */
  zoomed(): void {
    this.draw();
  }

  /** The boxes of the selection, as they are drawn. */
  private drawn(): Boxes {
    const { boxes } = this.stack.selected(this.state);
    return this.state.selection.isFolded ? this.stack.folded(boxes) : boxes;
  }

  /** Places the boxes, unless they are where they were. */
  private layout(boxes: Boxes): void {
    const { selection } = this.state;
    const { view } = this;
    const { width } = this.canvas;
    const key = JSON.stringify([view, selection.focus, selection.zoom, width]);
    if (this.lastKey === key && this.lastBoxes === boxes) return;
    [this.lastKey, this.lastBoxes] = [key, boxes];
    if (view === "sandwich" && selection.focus !== null) {
      this.parts = [true, false].map((callers, index) => placed(index, this.stack.around(boxes, selection.focus!, callers), 0, width, !callers, false));
      // The function itself is the root.
      for (const part of this.parts) part.levels = part.levels.slice(1).map((row, level) => row.map((box) => ({ ...box, level })));
    } else if (view === "time order") {
      this.parts = [placed(0, this.timed(), 0, width, false, true)];
    } else {
      this.parts = [placed(0, boxes, selection.zoom < boxes.parent.length ? selection.zoom : 0, width, view === "icicle", false)];
    }
    let top = 0;
    for (const part of this.parts) {
      part.top = top;
      top += part.levels.length * LEVEL + 8;
    }
  }

  /** Height of the picture. While one zooms, it only grows, so that nothing below it moves. */
  private height(): number {
    const { time, threads, profile, focus } = this.state.selection;
    const key = JSON.stringify([this.view, time, [...threads], profile, focus, this.canvas.width]);
    const last = this.parts[this.parts.length - 1]!;
    const needed = Math.max(60, last.top + last.levels.length * LEVEL + 2);
    const height = Math.min(HIGHEST_CANVAS, Math.max(needed, this.lastHeight.key === key ? this.lastHeight.height : 0, this.scroller.clientHeight - 8));
    this.lastHeight = { key, height };
    // The root of a flame graph is at the bottom.
    if (this.parts.length === 1 && !last.down) last.top = height - 2 - last.levels.length * LEVEL;
    return height;
  }

  /** What the picture says of the selection and the search. */
  private sums(boxes: Boxes): NonNullable<Flame["known"]> {
    const { query } = this.state.selection;
    const { known, byModule: isByModule } = this;
    if (known?.boxes === boxes && known.query === query && known.isByModule === isByModule) return known;
    const isSame = known?.boxes === boxes && known.isByModule === isByModule;
    const modules = isSame ? known.modules : this.moduleColors();
    const expression = this.state.expression();
    return (this.known = {
      boxes, query, isByModule, modules, legend: isSame ? known.legend : this.legendWeights(boxes, modules),
      hits: expression === null ? [] : this.profile.labels.map(([name, kind]) => kind > 1 && expression.test(name)),
      matched: expression === null ? 0 : this.stack.matched(boxes, expression),
    });
  }

  private draw(): void {
    const { canvas, view } = this;
    const root = this.drawn();
    if (view === "top-down" || view === "bottom-up") {
      this.tree.show(this.profile, this.stack, this.stack.selected(this.state).boxes, view === "bottom-up");
      this.drawLegend(root, this.sums(root).modules, isDark() ? 1 : 0);
      return;
    }
    canvas.width = canvas.element.clientWidth;
    if (canvas.width === 0) return;
    this.layout(root);
    canvas.fit(this.height());
    // One reads a picture from its root.
    const place = JSON.stringify([view, this.state.selection.profile, this.state.selection.focus]);
    if (this.scrolled !== place) {
      this.scrolled = place;
      const [first, second] = this.parts;
      this.scroller.scrollTop = view === "flame" || view === "time order" ? canvas.height
        : second !== undefined && first !== undefined && !first.down ? Math.max(0, second.top - this.scroller.clientHeight / 2) : 0;
    }
    const { context } = canvas;
    const { hits, modules, matched } = this.sums(root);
    context.font = FONT;
    context.textBaseline = "middle";
    const letter = context.measureText("m").width;
    const [ink, edge, hit, band, dark] = [color("box-ink"), color("focus"), color("hit"), color("band"), (isDark() ? 1 : 0) as 0 | 1] as const;
    const hasZoom = this.view === "flame" || this.view === "icicle";
    const { zoom } = this.state.selection;
    const names: [string, number, number, number][] = [];
    for (const part of this.parts) {
      const { label: labels } = part.boxes;
      let isCaller = hasZoom && zoom > 0;
      for (const row of part.levels) {
        if (row[0]!.node === zoom) isCaller = false;
        const level = row[0]!.level;
        const y = part.top + (part.down ? level : part.levels.length - 1 - level) * LEVEL;
        for (const box of row) {
          const isHit = hits.length > 0 && this.isHit(box, hits);
          const label = box.frames > 1 ? null : this.labelIn(box);
          const [fill, alpha] = isHit ? [hit, 1] : box.frames > 1 ? [band, 1] : this.fill(label, box, root, modules, dark);
          context.globalAlpha = alpha * (isCaller ? 0.55 : 1);
          context.fillStyle = fill;
          context.fillRect(box.x, y, box.width > 3 ? box.width - 0.7 : box.width, LEVEL - 1);
          if (label?.[1] === 1) this.hatch(box.x, y, box.width);
          const letters = Math.floor((box.width - 6) / letter);
          if (letters >= 3 && labels[box.node] !== undefined && box.frames === 1) names.push([label?.[0] ?? "all", letters, box.x, y]);
        }
      }
    }
    context.globalAlpha = 1;
    context.fillStyle = ink;
    for (const [name, letters, x, y] of names) write(context, shortened(name, letters), x + 4, y + LEVEL / 2, letters * letter);
    const box = document.activeElement === canvas.element ? this.atCursor() : undefined;
    if (box !== undefined) {
      context.strokeStyle = edge;
      context.lineWidth = 2;
      const part = this.parts[box.part]!;
      const y = part.top + (part.down ? box.level : part.levels.length - 1 - box.level) * LEVEL;
      context.strokeRect(box.x + 1, y + 1, Math.max(1, box.width - 3), LEVEL - 3);
    }
    this.drawLegend(root, modules, dark);
    if (this.state.expression() !== null) {
      this.status.replaceChildren(make("span", { id: "matched", "data-value": String(matched) },
        `search matches ${percent(matched, root.total[0]!)}, ${amount(matched, this.profile.unit)}`));
    } else if (document.activeElement !== canvas.element && this.status.firstChild !== null) {
      this.status.textContent = "";
    }
    if (root.total[0] === 0 && (root.before?.[0] ?? 0) === 0) this.status.textContent = "nothing selected";
  }

  /** Whether a frame matches the search, or one of several narrow ones. */
  private isHit(box: Box, hits: boolean[]): boolean {
    const { boxes } = this.parts[box.part]!;
    if (box.frames === 1) return hits[boxes.label[box.node]!] === true;
    const siblings = boxes.children(boxes.parent[box.node]!);
    const first = siblings.indexOf(box.node);
    return siblings.subarray(first, first + box.frames).some((node) => hits[boxes.label[node]!] === true);
  }

  private hatch(x: number, y: number, width: number): void {
    const { context } = this.canvas;
    context.save();
    context.beginPath();
    context.rect(x, y, width - 0.7, LEVEL - 1);
    context.clip();
    context.strokeStyle = color("line");
    context.lineWidth = 2;
    context.beginPath();
    for (let at = x - LEVEL; at < x + width; at += 8) {
      context.moveTo(at, y + LEVEL);
      context.lineTo(at + LEVEL, y);
    }
    context.stroke();
    context.restore();
  }

  private fill(label: Label | null, box: Box, root: Boxes, modules: Map<number, number>, dark: 0 | 1): [string, number] {
    const { colors } = this.data;
    if (label === null) return [color("band"), 1];
    const { boxes } = this.parts[box.part]!;
    if (boxes.before !== null && root.before !== null) {
      const now = boxes.total[box.node]! / Math.max(1, root.total[0]!);
      const before = boxes.before[box.node]! / Math.max(1, root.before[0]!);
      const points = Math.abs(now - before) * 100;
      const steps = this.stack.isNoise(now, before) ? 0 : [0.1, 0.5, 2, 8].filter((limit) => points >= limit).length;
      return [colors.changes[4 + (now < before ? -steps : steps)]![dark], 1];
    }
    const alpha = SHADES[shade(label[0])]!;
    if (this.byModule) return [colors.modules[label[2] === null ? 8 : modules.get(label[2]) ?? 8]![dark], alpha];
    if (label[1] === 1) return [color("band"), 1];
    return [colors[this.profile.is_off_cpu ? "off_cpu" : "kinds"][label[1]]![dark], alpha];
  }

  /** The heaviest modules by the weight of their own. */
  private moduleColors(): Map<number, number> {
    if (!this.byModule) return new Map();
    const { own, label } = this.drawn();
    const weights = new Map<number, number>();
    own.forEach((weight, node) => {
      const module = node === 0 || label[node]! < 0 ? null : this.profile.labels[label[node]!]![2];
      if (module !== null && weight > 0) weights.set(module, (weights.get(module) ?? 0) + weight);
    });
    return new Map([...weights].sort((a, b) => b[1] - a[1]).slice(0, 8).map(([module], place) => [module, place]));
  }

  /** Weights by kind, or by color of the module. */
  private legendWeights(boxes: Boxes, modules: Map<number, number>): Map<number, number> {
    const { labels } = this.profile;
    const keys = labels.map((label) => (this.byModule ? (label[2] === null ? 8 : modules.get(label[2]) ?? 8) : label[1]));
    const weights = new Map<number, number>();
    for (let node = 1; node < boxes.own.length; node++) {
      const weight = boxes.own[node]!;
      if (weight === 0) continue;
      const key = keys[boxes.label[node]!]!;
      weights.set(key, (weights.get(key) ?? 0) + weight);
    }
    return weights;
  }

  private drawLegend(root: Boxes, modules: Map<number, number>, dark: 0 | 1): void {
    const { colors } = this.data;
    if (root.before !== null) {
      const keys = colors.changes.map((pair) => legendEntry(pair[dark]!, ""));
      this.lastLegend = "";
      this.legend.replaceChildren("less ", make("span", { class: "keys" }, ...keys), "more: 0.1, 0.5, 2 and 8 percentage points; gray: unchanged, or within noise (95%)");
      return;
    }
    const isCut = this.parts.some((part) => part.isCut);
    const key = JSON.stringify([...this.sums(root).legend, dark, isCut, this.byModule, this.state.selection.profile]);
    if (this.lastLegend === key) return;
    this.lastLegend = key;
    const names = new Map([...modules].map(([module, place]) => [place, this.profile.modules[module]!.split("/").pop()!]));
    const palette = this.byModule ? colors.modules : colors[this.profile.is_off_cpu ? "off_cpu" : "kinds"];
    const known = [...this.sums(root).legend].sort((a, b) => b[1] - a[1]).map(([key, weight]) => {
      const name = this.byModule ? names.get(key) ?? "others" : key === 0 ? "no stack" : colors.names[key] ?? "";
      const fill = palette[key]![dark]!;
      return legendEntry(fill.startsWith("url") ? color("line") : fill, `${cut(name, 40)} ${percent(weight, root.total[0]!)}`);
    });
    const hint = isCut ? [make("span", {}, `deeper frames are narrower than ${LEAST_LEVEL} pixels: zoom in`)] : [];
    this.legend.replaceChildren(...known, ...hint);
  }
}

/** Writes a name into its box. Only letters that may be wide need their width measured. */
function write(context: CanvasRenderingContext2D, text: string, x: number, y: number, width: number): void {
  if (/^[\x20-\x7e…]*$/.test(text)) context.fillText(text, x, y);
  else context.fillText(text, x, y, width);
}

/** The shade of a name, as in pictures: FNV-1a. */
function shade(name: string): number {
  let hash = 0x811c9dc5;
  for (let index = 0; index < name.length; index++) hash = Math.imul(hash ^ name.charCodeAt(index), 0x01000193);
  return ((hash ^ (hash >>> 16)) >>> 0) % 4;
}
