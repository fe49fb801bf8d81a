// A page that was saved after the end of its job brings its status and events along.

const DATA = "saved-job"; // id of the element that has them, as reporting/saved_page.py writes it

const read = (page) => {
  const data = page.getElementById(DATA);
  return data === null ? null : JSON.parse(data.textContent);
};

/** Status and events of this page if it is a saved one; null if a master answers. */
export const saved = read(document);

/** The status in the text of a saved page, or null. */
export function savedStatus(text) {
  try {
    return read(new DOMParser().parseFromString(text, "text/html"))?.status ?? null;
  } catch {
    return null;
  }
}
