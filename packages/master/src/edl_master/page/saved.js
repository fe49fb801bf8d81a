// A page that was saved brings its data along, as adapters/saved_page.py writes them.

const ID = "saved-job";
// No "<" is within the data. The text of a page is not parsed as one: a browser would look at all of it.
const DATA = new RegExp(`<script type="application/json" id="${ID}">([^<]*)<`);

const own = document.getElementById(ID);

/** Status, events and timeline of this page if it is a saved one; null if a master answers. */
export const saved = own === null ? null : JSON.parse(own.textContent);

/** The status in the text of a saved page, or null. */
export function savedStatus(text) {
  try {
    return JSON.parse(DATA.exec(text)[1]).status;
  } catch {
    return null;
  }
}
