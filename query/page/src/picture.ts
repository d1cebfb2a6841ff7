// The script of every image: as wide as its window; flame graphs can be zoomed and searched, and have tooltips.

import { amount, cut, pattern, percent, wrapped, shortened } from "./format.ts";

const SVG = "http://www.w3.org/2000/svg";

/** What the image says about a flame graph (render/flame/svg.rs). */
interface FlameData {
  kind: "flame";
  unit: string;
  /** Name, kind, module, location; the first box, the root, has none. */
  labels: [string, string, string | null, string | null][];
  /** Level, label, total, own weight, and the total before if two traces are compared. */
  boxes: number[];
  compared: string | null;
  before: number;
  /** Leaves are at the root; nothing has a weight of its own. */
  reversed: boolean;
  icicle: boolean;
  level: number;
  /** Frames that are not drawn. */
  narrow: number;
}

interface Box {
  rect: Element;
  level: number;
  name: string;
  label: FlameData["labels"][number] | undefined;
  total: number;
  own: number;
  before: number;
  start: number;
  width: number;
  /** Index of the box below; the root is its own. */
  parent: number;
}

const root = document.documentElement as unknown as SVGSVGElement;

function element(name: string, attributes: Record<string, string | number>, text = ""): SVGElement {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  if (text !== "") made.textContent = text;
  return made;
}

/** Makes the image as wide as its window; returns its width. */
function fit(): number {
  const box = root.viewBox.baseVal;
  if (root.getAttribute("data-fixed") === null) {
    const width = Math.max(480, root.ownerDocument.defaultView?.innerWidth ?? box.width);
    root.setAttribute("width", "100%");
    root.setAttribute("viewBox", `0 0 ${width} ${box.height}`);
    root.setAttribute("preserveAspectRatio", "xMinYMin");
    for (const plot of document.querySelectorAll("svg.plot[data-margins]")) {
      plot.setAttribute("width", String(width - Number(plot.getAttribute("data-margins"))));
    }
  }
  return root.viewBox.baseVal.width;
}

class Flame {
  private readonly boxes: Box[] = [];
  private readonly names = document.getElementById("names") as unknown as SVGGElement;
  private readonly tip = element("g", { "pointer-events": "none", visibility: "hidden" });
  private readonly status = element("text", { class: "small", "text-anchor": "end" });
  private readonly input: HTMLInputElement;
  private readonly field: SVGElement;
  private zoomed = 0;
  private width = 0;
  private letter = 7.25;

  constructor(private readonly data: FlameData) {
    const rects = document.querySelectorAll("#boxes > rect.b");
    const size = data.compared === null ? 4 : 5;
    const all = data.boxes[2] ?? 1;
    // The last box of every level below the current one, and where its next callee begins.
    const path: { index: number; next: number }[] = [];
    rects.forEach((rect, index) => {
      const [level = 0, label = 0, total = 0, own = 0, before = 0] =
        data.boxes.slice(index * size, index * size + size);
      const share = (weight: number, of: number) => (of > 0 ? weight / of : 0);
      const width = data.compared === null || data.before === 0
        ? share(total, all)
        : all === 0 ? share(before, data.before)
        : (share(total, all) + share(before, data.before)) / 2;
      const below = path[level - 1];
      const start = below?.next ?? 0;
      if (below !== undefined) below.next += width;
      path.length = level;
      path.push({ index, next: start });
      const known = data.labels[label - 1];
      this.boxes.push({
        rect, level, label: known, name: known?.[0] ?? "all", total, own, before, start, width,
        parent: below?.index ?? 0,
      });
    });
    this.input = document.createElementNS("http://www.w3.org/1999/xhtml", "input") as HTMLInputElement;
    this.input.setAttribute("placeholder", "Search: /");
    this.input.setAttribute("aria-label", "Search functions; a regular expression");
    this.input.setAttribute("style",
      "width:190px;box-sizing:border-box;font:12px system-ui,sans-serif;padding:3px 6px;border:1px solid #8c959f;" +
      "border-radius:4px;background:transparent;color:inherit");
    this.field = element("foreignObject", { y: 18, width: 190, height: 28, style: "color:CanvasText" });
    this.field.append(this.input);
    root.append(this.field, this.status, this.toggle(), this.tip);
    this.listen();
    this.fromFragment();
  }

  /** What switches between the two meanings of the colors. */
  private toggle(): SVGElement {
    const text = () => (root.classList.contains("by-module") ? "color by kind" : "color by module");
    const button = element("text", { class: "small quiet button", y: 36, "text-anchor": "end", id: "toggle" }, text());
    if (this.data.compared !== null) button.setAttribute("visibility", "hidden");
    button.addEventListener("click", () => {
      root.classList.toggle("by-module");
      root.classList.toggle("by-kind");
      button.textContent = text();
    });
    return button;
  }

  private listen(): void {
    const boxOf = (event: Event) => {
      const target = event.target;
      return target instanceof Element && target.classList.contains("b") ? this.boxes.findIndex((box) => box.rect === target) : -1;
    };
    root.addEventListener("click", (event) => {
      const index = boxOf(event);
      if (index >= 0) this.zoom(index === this.zoomed ? this.boxes[index]!.parent : index);
    });
    root.addEventListener("mousemove", (event) => this.point(boxOf(event), event));
    root.addEventListener("mouseleave", () => this.point(-1, null));
    this.input.addEventListener("input", () => this.search());
    window.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const isInside = document.activeElement === this.input;
      if (event.key === "/" && !isInside) {
        event.preventDefault();
        this.input.focus();
        this.input.select();
      } else if (event.key === "Escape") {
        if (isInside && this.input.value !== "") {
          this.input.value = "";
          this.search();
        } else {
          this.input.blur();
          this.zoom(this.boxes[this.zoomed]!.parent);
        }
      } else if (event.key === "Enter" && isInside) {
        this.input.blur();
      }
    });
    window.addEventListener("hashchange", () => this.fromFragment());
  }

  layout(width: number): void {
    this.width = width - 40;
    this.field.setAttribute("x", String(width - 210));
    document.getElementById("toggle")?.setAttribute("x", String(width - 226));
    this.status.setAttribute("x", String(width - 20));
    this.status.setAttribute("y", "64");
    this.draw();
  }

  private zoom(index: number): void {
    this.zoomed = index;
    this.toFragment();
    this.draw();
  }

  private draw(): void {
    const view = this.boxes[this.zoomed]!;
    const texts: SVGElement[] = [];
    const above = new Set<number>();
    for (let index = this.zoomed; ; index = this.boxes[index]!.parent) {
      above.add(index);
      if (index === 0) break;
    }
    this.boxes.forEach((box, index) => {
      const isBelow = above.has(index) && index !== this.zoomed;
      const start = isBelow ? 0 : (box.start - view.start) / view.width;
      const width = isBelow ? 1 : box.width / view.width;
      // Widths are sums of fractions.
      const isOutside = !isBelow && (box.level < view.level || start < -1e-9 || start + width > 1 + 1e-9);
      const isHidden = isOutside || width * this.width < 0.05;
      box.rect.setAttribute("visibility", isHidden ? "hidden" : "visible");
      if (isHidden) return;
      const [x, pixels] = [start * this.width, width * this.width];
      box.rect.setAttribute("x", x.toFixed(2));
      box.rect.setAttribute("width", (pixels > 3 ? pixels - 0.7 : pixels).toFixed(2));
      box.rect.classList.toggle("up", isBelow);
      const letters = Math.floor((pixels - 6) / this.letter);
      if (letters < 3) return;
      const y = Number(box.rect.getAttribute("y")) + 12.5;
      texts.push(element("text", { class: "name words", x: (x + 4).toFixed(1), y }, shortened(box.name, letters)));
    });
    this.names.replaceChildren(...texts);
  }

  /** Shows or hides the tooltip. */
  private point(index: number, event: MouseEvent | null): void {
    const box = this.boxes[index];
    if (box === undefined || event === null) {
      this.tip.setAttribute("visibility", "hidden");
      return;
    }
    const lines = [...wrapped(box.name, 90, 5), ...this.facts(box)];
    const width = Math.max(...lines.map((line) => line.length)) * 6.9 + 24;
    const height = lines.length * 17 + 12;
    const texts = lines.map((line, place) =>
      element("text", { x: 12, y: 19 + place * 17, class: place === 0 ? "name" : "small" }, line));
    this.tip.replaceChildren(element("rect", { class: "tip", width, height, rx: 4 }), ...texts);
    const bounds = root.getBoundingClientRect();
    const scale = root.viewBox.baseVal.width / bounds.width;
    const [x, y] = [(event.clientX - bounds.left) * scale, (event.clientY - bounds.top) * scale];
    const left = Math.max(4, Math.min(x + 14, this.width + 36 - width));
    const isLow = y + 20 + height > root.viewBox.baseVal.height;
    this.tip.setAttribute("transform", `translate(${left},${isLow ? y - height - 10 : y + 18})`);
    this.tip.setAttribute("visibility", "visible");
  }

  private facts(box: Box): string[] {
    const { unit, compared, before } = this.data;
    const root = this.boxes[0]!;
    const lines: string[] = [];
    const [, kind, module, location] = box.label ?? ["", "", null, null];
    if (kind !== "" && kind !== "group" && kind !== "function") {
      lines.push(module === null ? kind : `${kind}: ${module}`);
    }
    if (location !== null) lines.push(location);
    lines.push(`${amount(box.total, unit)}, ${percent(box.total, root.total)}`);
    if (!this.data.reversed && box.own > 0 && box.own < box.total) {
      lines.push(`self ${amount(box.own, unit)}, ${percent(box.own, root.total)}`);
    }
    if (compared !== null) {
      const points = (box.total / Math.max(1, root.total) - box.before / Math.max(1, before)) * 100;
      lines.push(`${compared}: ${amount(box.before, unit)}, ${percent(box.before, before)}`);
      lines.push(`change: ${points > 0 ? "+" : ""}${points.toFixed(2)} percentage points`);
    }
    return lines.map((line) => cut(line, 100));
  }

  /** Marks matching functions; shows their share, of which a match inside another one is no second part. */
  private search(): void {
    const expression = pattern(this.input.value);
    let weight = 0;
    const counted = new Set<number>();
    this.boxes.forEach((box, index) => {
      const isHit = expression !== null && index > 0 && expression.test(box.name);
      box.rect.classList.toggle("hit", isHit);
      const isInside = index > 0 && counted.has(box.parent);
      if (isHit && !isInside) weight += box.total;
      if (isHit || isInside) counted.add(index);
    });
    const all = this.boxes[0]!.total;
    const drawn = this.data.narrow > 0 ? " of what is drawn" : "";
    this.status.textContent = expression === null
      ? ""
      : `matched ${percent(weight, all)}, ${amount(weight, this.data.unit)}${drawn}`;
    this.toFragment();
  }

  private toFragment(): void {
    const parts = new URLSearchParams();
    if (this.zoomed > 0) parts.set("zoom", String(this.zoomed));
    if (this.input.value !== "") parts.set("q", this.input.value);
    const text = parts.toString();
    if (`#${text}` !== location.hash) history.replaceState(null, "", text === "" ? location.pathname : `#${text}`);
  }

  private fromFragment(): void {
    const parts = new URLSearchParams(location.hash.slice(1));
    const zoomed = Number(parts.get("zoom") ?? 0);
    this.zoomed = this.boxes[zoomed] === undefined ? 0 : zoomed;
    this.input.value = parts.get("q") ?? "";
    this.search();
    if (this.width > 0) this.draw();
  }
}

const text = document.getElementById("data")?.textContent ?? null;
const data = text === null ? null : (JSON.parse(text) as FlameData);
const flame = data?.kind === "flame" ? new Flame(data) : null;
const layout = () => {
  const width = fit();
  flame?.layout(width);
};
layout();
window.addEventListener("resize", layout);
// One reads a flame graph from its root.
if (data?.kind === "flame" && !data.icicle && location.hash === "") window.scrollTo(0, root.viewBox.baseVal.height);
