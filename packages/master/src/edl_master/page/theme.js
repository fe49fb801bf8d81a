// Light or dark: as the reader's system has it, until he chooses.

import { byId } from "./dom.js";

const KEY = "edl-colours";

/** Keeps the choice in this browser, and calls `changed` whenever other colours hold. */
export function offerColours(changed) {
  const choice = byId("colours");
  choice.value = kept();
  const apply = () => {
    document.documentElement.dataset.colours = choice.value;
    changed();
  };
  choice.addEventListener("change", () => {
    keep(choice.value);
    apply();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
  apply();
}

// A browser may refuse to keep anything, as for a file; the choice then holds for this visit.
function kept() {
  try {
    const value = localStorage.getItem(KEY);
    return ["light", "dark"].includes(value) ? value : "auto";
  } catch {
    return "auto";
  }
}

function keep(value) {
  try {
    localStorage.setItem(KEY, value);
  } catch {
    // see above
  }
}
