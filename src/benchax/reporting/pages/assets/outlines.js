"use strict";
// Boxes inside one another: a tree for screen readers and keys, in which a search unfolds what it finds. A box is made
// when it is first seen, so that a program of ten thousand operations costs what is looked at.

const MOST_BOXES = 100;
const MOST_FOUND = 300;

class Outline {
  constructor(holder, data) {
    this.columns = data.columns;
    this.all = [];
    this.byKey = new Map();
    this.roots = data.entries.map((entry) => this.read(entry, null));
    this.totals = this.columns.map((_, i) => this.roots.reduce((sum, box) => sum + (box.values[i] || 0), 0));
    this.readers = new Map();
    for (const box of this.all) for (const key of box.reads) this.readers.set(key, [...(this.readers.get(key) || []), box.key]);
    this.found = null;
    this.tree = make("div", { class: "tree", role: "tree", "aria-label": data.caption });
    this.about = make("section", { class: "about", "aria-label": "the chosen box" });
    const place = holder.querySelector(".boxes");
    place.append(this.makeSearch(), this.makeHead(), this.tree, this.about);
    this.tree.addEventListener("keydown", (event) => this.onKey(event));
    this.tree.addEventListener("click", (event) => this.onClick(event));
    this.tree.addEventListener("focusin", (event) => this.choose(event.target.closest(".box")?.box));
    this.fill(this.tree, this.roots, null);
    if (this.roots.length === 1) this.open(this.roots[0]);
    this.makeReachable(this.tree.firstElementChild);
    holder.dataset.drawn = "yes";
  }

  read({ name, kind = "", values, detail = "", source = "", key = null, reads, parts = [] }, parent) {
    const box = { name, kind, values: decodeNumbers(values), detail, source, key, reads: decodeNumbers(reads), parent, isOpen: false, shown: MOST_BOXES };
    box.path = parent ? [...parent.path, box.name] : [box.name];
    this.all.push(box);
    if (key !== null) this.byKey.set(key, box);
    box.parts = parts.map((part) => this.read(part, box));
    return box;
  }

  costs(box) {
    return this.columns.map(({ name, quantity = "" }, i) => {
      const value = box.values[i];
      if (value === 0 || value === undefined) return { name, text: "" };
      // Operations and bytes say themselves what they are.
      const text = value === null ? "not known" : writeValue(value, quantity);
      return { name, text, spoken: quantity && value !== null ? text : `${text} ${name}`, share: this.totals[i] && value ? value / this.totals[i] : 0 };
    });
  }

  makeHead() {
    const head = make("div", { class: "row head", "aria-hidden": "true" });
    head.append(make("span", { class: "sign" }), make("span", { class: "what" }, "box"));
    this.columns.forEach(({ name }) => head.append(make("span", { class: "cost" }, name)));
    return head;
  }

  // ---- boxes ----

  makeBox(box, at, of) {
    const level = box.path.length;
    const element = make("div", { class: "box", role: "treeitem", tabindex: "-1", "aria-level": level, "aria-posinset": at + 1, "aria-setsize": of });
    const costs = this.costs(box);
    const said = [`${box.kind} ${box.name}`.trim(), ...costs.map(({ spoken }) => spoken), box.detail, box.source];
    element.setAttribute("aria-label", said.filter(Boolean).join(", "));
    const row = make("div", { class: "row" });
    const what = make("span", { class: "what" });
    what.append(make("span", { class: "kind" }, box.kind), " ", make("span", { class: "name" }, box.name));
    const more = [box.detail, box.source].filter(Boolean).join(" · ");
    if (more) what.append(" ", make("span", { class: "more" }, more));
    row.append(make("span", { class: "sign", "aria-hidden": "true" }), what);
    costs.forEach(({ name, text, share }) => row.append(this.makeCost(name, text, share)));
    element.append(row);
    if (this.found?.has(box)) element.classList.add("found");
    Object.assign(element, { box });
    box.element = element;
    if (box.parts.length) {
      element.setAttribute("aria-expanded", "false");
      if (box.isOpen) this.open(box);
    }
    return element;
  }

  makeCost(name, text, share) {
    const cost = make("span", { class: "cost" });
    cost.append(make("span", { class: "label" }, text ? `${name} ` : ""), text);
    if (share > 0) {
      const bar = make("span", { class: "share", "aria-hidden": "true" });
      bar.style.width = `${Math.min(100, Math.max(1, 100 * share))}%`;
      cost.append(bar);
    }
    return cost;
  }

  // Of a search only what was found, what leads there, and what stands inside.
  visible(boxes) {
    return this.kept ? boxes.filter((box) => this.kept.has(box) || this.isInsideFound(box)) : boxes;
  }

  isInsideFound(box) {
    for (let above = box.parent; above; above = above.parent) if (this.found.has(above)) return true;
    return false;
  }

  fill(group, boxes, parent) {
    const listed = this.visible(boxes);
    const shown = listed.slice(0, parent ? parent.shown : this.shownRoots || MOST_BOXES);
    group.replaceChildren(...shown.map((box, i) => this.makeBox(box, i, listed.length)));
    if (shown.length < listed.length) group.append(this.makeMore(listed.length - shown.length, parent));
  }

  makeMore(left, parent) {
    const text = `${left} more: show ${Math.min(left, MOST_BOXES)}`;
    const element = make("div", { class: "box rest", role: "treeitem", tabindex: "-1", "aria-level": parent ? parent.path.length + 1 : 1 }, text);
    element.onMore = () => {
      const group = element.parentElement;
      const before = group.children.length - 1;
      if (parent) parent.shown += MOST_BOXES;
      else this.shownRoots = (this.shownRoots || MOST_BOXES) + MOST_BOXES;
      this.fill(group, parent ? parent.parts : this.roots, parent);
      this.focus(group.children[before]);
    };
    return element;
  }

  open(box) {
    box.isOpen = true;
    if (!box.element || box.element.getAttribute("aria-expanded") === "true") return;
    box.element.setAttribute("aria-expanded", "true");
    const group = make("div", { role: "group" });
    box.element.append(group);
    this.fill(group, box.parts, box);
  }

  close(box) {
    box.isOpen = false;
    box.element.setAttribute("aria-expanded", "false");
    box.element.querySelector(":scope > [role=group]")?.remove();
  }

  toggle(element) {
    if (element.onMore) element.onMore();
    else if (element.box.parts.length) (element.box.isOpen ? this.close : this.open).call(this, element.box);
  }

  // ---- keys and pointers, as the ARIA Authoring Practices have them for a tree ----

  focus(element) {
    if (!element) return;
    this.makeReachable(element);
    element.focus();
    element.querySelector(".row")?.scrollIntoView({ block: "nearest" });
  }

  makeReachable(element) {
    this.tree.querySelectorAll("[tabindex='0']").forEach((other) => other.setAttribute("tabindex", "-1"));
    element?.setAttribute("tabindex", "0");
  }

  onClick(event) {
    const element = event.target.closest(".box");
    // Text that is being selected is not to be folded away.
    if (!element || String(getSelection())) return;
    this.focus(element);
    this.toggle(element);
  }

  onKey(event) {
    const element = event.target.closest(".box");
    if (!element || event.ctrlKey || event.metaKey || event.altKey) return;
    const listed = () => [...this.tree.querySelectorAll(".box")];
    const step = (by) => this.focus(listed()[listed().indexOf(element) + by]);
    const isOpen = element.getAttribute("aria-expanded");
    const actions = {
      ArrowDown: () => step(1),
      ArrowUp: () => step(-1),
      Home: () => this.focus(listed()[0]),
      End: () => this.focus(listed().at(-1)),
      Enter: () => this.toggle(element),
      " ": () => this.toggle(element),
      ArrowRight: () => (isOpen === "false" ? this.open(element.box) : isOpen && step(1)),
      ArrowLeft: () => (isOpen === "true" ? this.close(element.box) : this.focus(element.parentElement.closest(".box"))),
    };
    if (!actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
  }

  // ---- search ----

  makeSearch() {
    const bar = make("div", { class: "filter", role: "search" });
    const id = `find-${document.querySelectorAll(".boxes .filter").length}`;
    this.field = make("input", { type: "search", id, placeholder: "name, scope or line", autocomplete: "off" });
    this.count = make("span", { role: "status" });
    const fold = make("button", { type: "button" }, "Fold all");
    bar.append(make("label", { for: id }, "Find operations "), this.field, " ", fold, " ", this.count);
    let pending = 0;
    this.field.addEventListener("input", () => {
      clearTimeout(pending);
      pending = setTimeout(() => this.search(this.field.value), 120);
    });
    this.field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== "ArrowDown") return;
      event.preventDefault();
      clearTimeout(pending);
      this.search(this.field.value);
      this.focus(this.tree.querySelector(".found") || this.tree.firstElementChild);
    });
    fold.addEventListener("click", () => {
      this.field.value = "";
      this.all.forEach((box) => { box.isOpen = false; });
      this.search("");
    });
    return bar;
  }

  // A path is that of the box where it ends in it, not of all that is inside.
  matches(box, wanted) {
    const has = (text) => text.toLowerCase().includes(wanted);
    const isPath = wanted.includes("/") && has(box.path.join("/")) && !(box.parent && has(box.parent.path.join("/")));
    return isPath || [box.name, box.kind, box.source].some(has);
  }

  search(text) {
    const wanted = text.trim().toLowerCase();
    if (wanted === (this.wanted || "") && wanted) return;
    this.wanted = wanted;
    const all = wanted ? this.all.filter((box) => this.matches(box, wanted)) : [];
    this.found = wanted ? new Set(all.slice(0, MOST_FOUND)) : null;
    this.kept = wanted ? new Set(this.found) : null;
    for (const box of this.found || []) {
      for (let above = box.parent; above; above = above.parent) {
        this.kept.add(above);
        above.isOpen = true;
      }
    }
    this.fill(this.tree, this.roots, null);
    this.makeReachable(this.tree.firstElementChild);
    const beyond = all.length > MOST_FOUND ? `, of which the first ${MOST_FOUND} are here` : "";
    this.count.textContent = wanted ? `${all.length} of ${this.all.length} boxes${beyond}` : "";
  }

  // ---- the chosen box: what it reads, and who reads it ----

  choose(box) {
    if (!box || box === this.chosen) return;
    this.chosen = box;
    const parts = [make("p", { class: "title" }, `${box.kind} ${box.name}`.trim()), make("p", { class: "more" }, box.path.join(" / "))];
    const costs = this.costs(box).map(({ spoken }) => spoken);
    parts.push(make("p", {}, [...costs, box.detail, box.source].filter(Boolean).join(" · ")));
    parts.push(...this.makeLinks("reads", box.reads), ...this.makeLinks("read by", this.readers.get(box.key) || []));
    this.about.replaceChildren(...parts);
  }

  makeLinks(title, keys) {
    const boxes = keys.map((key) => this.byKey.get(key)).filter(Boolean);
    if (!boxes.length) return [];
    const line = make("p", {}, `${title} `);
    for (const box of boxes.slice(0, MOST_BOXES)) {
      const button = make("button", { type: "button" }, `${box.kind} ${box.name}`);
      button.addEventListener("click", () => this.reveal(box));
      line.append(button, " ");
    }
    if (boxes.length > MOST_BOXES) line.append(`and ${boxes.length - MOST_BOXES} more`);
    return [line];
  }

  reveal(box) {
    this.field.value = "";
    for (let inner = box; inner; inner = inner.parent) {
      const beside = inner.parent ? inner.parent.parts : this.roots;
      const needed = beside.indexOf(inner) + 1;
      if (inner.parent) Object.assign(inner.parent, { isOpen: true, shown: Math.max(inner.parent.shown, needed) });
      else this.shownRoots = Math.max(this.shownRoots || MOST_BOXES, needed);
    }
    this.search("");
    this.focus(box.element);
  }
}
