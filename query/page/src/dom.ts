// Elements and canvases. Text is inserted as text, so that no name of a trace becomes markup.

export type Child = Node | string | null;

export function make<K extends keyof HTMLElementTagNameMap>(
  tag: K, properties: Record<string, string> = {}, ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) element.setAttribute(name, value);
  for (const child of children) if (child !== null) element.append(child);
  return element;
}

export function button(text: string, title: string, onClick: () => void): HTMLButtonElement {
  const element = make("button", { type: "button", title }, text);
  element.addEventListener("click", onClick);
  return element;
}

/** The command that repeats a panel, with a button that copies it. */
export function commandLine(text: () => string): { element: HTMLElement; update: () => void } {
  const code = make("code");
  const copy = button("Copy", "Copy the command", () => {
    getSelection()?.selectAllChildren(code);
    const done = () => {
      copy.textContent = "Copied";
      setTimeout(() => (copy.textContent = "Copy"), 1200);
    };
    // Without a permission, the selected text can be copied by hand.
    navigator.clipboard?.writeText(code.textContent ?? "").then(done, () => document.execCommand("copy") && done());
  });
  return { element: make("p", { class: "command" }, copy, code), update: () => (code.textContent = text()) };
}

/** A button that saves the picture of a panel. */
export function pictureButton(name: string, ...canvases: Canvas[]): HTMLButtonElement {
  return button("PNG", "Save the picture", () => {
    const shown = canvases.filter((one) => one.element.isConnected && one.width > 0);
    const scale = window.devicePixelRatio || 1;
    const whole = document.createElement("canvas");
    whole.width = Math.max(1, ...shown.map((one) => one.element.width));
    whole.height = Math.max(1, shown.reduce((sum, one) => sum + one.element.height + 6 * scale, 0));
    const context = whole.getContext("2d")!;
    context.fillStyle = color("ground");
    context.fillRect(0, 0, whole.width, whole.height);
    let top = 0;
    for (const one of shown) {
      context.drawImage(one.element, 0, top);
      top += one.element.height + 6 * scale;
    }
    whole.toBlob((blob) => {
      if (blob === null) return;
      const url = URL.createObjectURL(blob);
      const link = make("a", { href: url, download: `${name}.png` });
      link.click();
      setTimeout(() => URL.revokeObjectURL(url), 10_000);
    });
  });
}

/** Copies a text; calls `done` once it is copied. */
export function copied(text: string, done: () => void): void {
  const byHand = () => {
    const area = make("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    if (document.execCommand("copy")) done();
    area.remove();
  };
  const copying = navigator.clipboard?.writeText(text);
  if (copying === undefined) byHand();
  else copying.then(done, byHand);
}

export interface Panel {
  element: HTMLElement;
  body: HTMLElement;
  /** What belongs beside the title. */
  tools: HTMLElement;
  note: HTMLElement;
}

export function panel(id: string, title: string): Panel {
  const tools = make("div", { class: "tools" });
  const note = make("p", { class: "note" });
  const body = make("div", { class: "body" });
  const element = make("section", { id, "aria-labelledby": `${id}-title` },
    make("header", {}, make("h2", { id: `${id}-title` }, title), tools), note, body);
  return { element, body, tools, note };
}

/** An entry of a legend: a color and what it stands for. */
export function legendEntry(fill: string, text: string): HTMLElement {
  const key = make("i");
  key.style.background = fill;
  return make("span", text === "" ? { class: "key" } : {}, key, text);
}

/** A canvas as wide as its place, sharp on every screen. */
export class Canvas {
  readonly element: HTMLCanvasElement;
  readonly context: CanvasRenderingContext2D;
  width = 0;
  height = 0;

  constructor(label: string, height: number) {
    this.element = make("canvas", { tabindex: "0", role: "img", "aria-label": label });
    this.context = this.element.getContext("2d")!;
    this.height = height;
    this.element.style.height = `${height}px`;
  }

  /** Fits the canvas to its place; returns whether it can be seen. */
  fit(height = this.height): boolean {
    const scale = window.devicePixelRatio || 1;
    this.height = height;
    this.element.style.height = `${height}px`;
    this.width = this.element.clientWidth;
    if (this.width === 0) return false;
    const [wide, high] = [Math.round(this.width * scale), Math.round(height * scale)];
    if (this.element.width !== wide || this.element.height !== high) {
      this.element.width = wide;
      this.element.height = high;
    }
    this.context.setTransform(scale, 0, 0, scale, 0, 0);
    this.context.clearRect(0, 0, this.width, height);
    return true;
  }

  /** Place of a mouse event. */
  place(event: MouseEvent): [number, number] {
    const bounds = this.element.getBoundingClientRect();
    return [event.clientX - bounds.left, event.clientY - bounds.top];
  }
}

/** A tooltip for canvases. */
export class Tip {
  readonly element = make("div", { id: "tip", role: "tooltip", hidden: "" });

  show(lines: string[], event: MouseEvent): void {
    this.element.replaceChildren(...lines.map((line) => make("div", {}, line)));
    this.element.hidden = false;
    const { offsetWidth: width, offsetHeight: height } = this.element;
    const left = Math.max(4, Math.min(event.clientX + 14, document.documentElement.clientWidth - width - 8));
    const top = event.clientY + 18 + height > window.innerHeight ? event.clientY - height - 10 : event.clientY + 18;
    this.element.style.left = `${left}px`;
    this.element.style.top = `${Math.max(4, top)}px`;
  }

  hide(): void {
    this.element.hidden = true;
  }

  /** Shows the facts of what the pointer is over in an element where things can be clicked. */
  follow<T>(element: HTMLElement, at: (event: MouseEvent) => T | null, facts: (one: T) => string[]): void {
    element.addEventListener("mousemove", (event) => {
      const one = at(event);
      if (one === null) this.hide();
      else this.show(facts(one), event);
      element.style.cursor = one === null ? "default" : "pointer";
    });
    element.addEventListener("mouseleave", () => this.hide());
  }
}

const isDarkPreferred = matchMedia("(prefers-color-scheme: dark)");
const colors = new Map<string, string>();

/** A variable of the style sheet. */
export function color(name: string): string {
  const key = `${isDark()} ${name}`;
  const known = colors.get(key);
  if (known !== undefined) return known;
  const value = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  colors.set(key, value);
  return value;
}

export function isDark(): boolean {
  const chosen = document.documentElement.dataset["theme"];
  return chosen === undefined ? isDarkPreferred.matches : chosen === "dark";
}
