// The few ways in which this page touches the document. What the master sends is text from
// strangers (host names, tracebacks, file names); it only ever becomes text nodes.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

/** An HTML element with a class and children; strings among the children become text. */
export function element(tag, className = "", ...children) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.append(...children);
  return node;
}

/** An SVG element with attributes. */
export function drawing(tag, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** Sets text only when it differs, so that a reader's selection survives an update. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Shows or hides an element. */
export function show(node, visible) {
  node.hidden = !visible;
}

/**
 * Makes the children of `parent` mirror `items`, in order, and keeps the element of a key that
 * stays: focus, selection and open details survive.
 */
export function mirror(parent, items, keyOf, create, update = () => {}) {
  const present = new Map();
  for (const child of parent.children) present.set(child.dataset.key, child);
  const used = new Set();
  let place = parent.firstElementChild;
  for (const item of items) {
    let key = String(keyOf(item));
    while (used.has(key)) key += "+"; // two items of one key are both shown
    used.add(key);
    let node = present.get(key);
    present.delete(key);
    if (!node) {
      node = create(item);
      node.dataset.key = key;
    }
    update(node, item);
    if (node === place) place = place.nextElementSibling;
    else parent.insertBefore(node, place);
  }
  for (const node of present.values()) node.remove();
}

/** Terms and values of a `dl`: `{label, value, note, tone}` each. */
export function fillFacts(list, facts) {
  mirror(
    list,
    facts,
    (fact) => fact.label,
    (fact) => element("div", "fact", element("dt", "", fact.label), element("dd")),
    (node, { value, note = "", tone = "" }) => {
      node.dataset.tone = tone;
      const place = node.lastElementChild;
      const signature = `${value}\u0000${note}`;
      if (place.dataset.shown === signature) return;
      place.dataset.shown = signature;
      place.replaceChildren(element("span", "value", value));
      if (note) place.append(" ", element("span", "fact-note", note));
    },
  );
}

/** A colour of page.css as it is at present, for what is painted. */
export function colour(name) {
  const probe = element("i");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

// One shape for each meaning, so that colour is never the only sign. 16 × 16, stroked.
const ICONS = {
  waiting: "M8 2.5a5.5 5.5 0 1 0 0 11a5.5 5.5 0 1 0 0-11M8 5v3.2l2.2 1.4",
  running: "M5 3.2v9.6l7.6-4.8z",
  finishing: "M3.5 2.5v11M3.5 3h8.5l-2 2.8l2 2.8h-8.5",
  stopped: "M3.8 3.8h8.4v8.4h-8.4z",
  good: "M3 8.6l3.4 3.4l6.6-7.6",
  bad: "M4 4l8 8M12 4l-8 8",
  warning: "M8 2.6l6 10.8h-12zM8 6.6v3M8 11.4v.2",
  info: "M8 2.5a5.5 5.5 0 1 0 0 11a5.5 5.5 0 1 0 0-11M8 7.6v3.2M8 5.2v.1",
  away: "M2.5 8h11",
};

/** A small picture that goes with a word; hidden from screen readers, which read the word. */
export function icon(name) {
  return drawing(
    "svg",
    { class: `icon icon-${name}`, viewBox: "0 0 16 16", "aria-hidden": "true" },
    drawing("path", { d: ICONS[name] ?? ICONS.info }),
  );
}
