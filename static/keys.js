// What the keys of a page do; app.js loads this with the first of them.
const ROWS = ".calls tbody tr[id], .steps > li:not(.of), .hits > li, ol.sessions > li, .need, .list tbody tr";
const list = document.getElementById("keys");
const isChanged = row => !!row && (row.classList.contains("add") || row.classList.contains("remove"));

// A part is an element that says so, or else a run of changed rows, which is known by its first one.
const partOf = element => {
  const part = element?.closest("[data-part]");
  if (part) return part;
  let row = element?.closest(".diff tr");
  if (!isChanged(row)) return null;
  while (isChanged(row.previousElementSibling)) row = row.previousElementSibling;
  return row;
};
const parts = () =>
  [...document.querySelectorAll("[data-part], .diff .add, .diff .remove")].filter(
    one => one.checkVisibility() && (one.dataset.part || !(one.closest("[data-part]") || isChanged(one.previousElementSibling))));
const rowsOf = part => {
  if (part.dataset.part) return [part];
  const rows = [];
  for (let row = part; isChanged(row); row = row.nextElementSibling) rows.push(row);
  return rows;
};

// Where the focus is; what htmx puts in the place of a part has its id, and takes the place of its focus.
let last = "";
const here = () => {
  const focus = document.activeElement;
  return (focus === document.body && last && document.getElementById(last)) || focus;
};
const go = (items, now, step) => {
  let at = items.indexOf(now) + step;
  if (!now || !items.includes(now)) {
    // from where the focus is, else from what is in sight
    const from = here().closest("main section, main li, main tr");
    const follows = one => from.compareDocumentPosition(one) & Node.DOCUMENT_POSITION_FOLLOWING;
    const below = items.findIndex(one => (from ? follows(one) : one.getBoundingClientRect().top >= 0));
    at = step > 0 ? (below < 0 ? items.length : below) : (below < 0 ? items.length : below) - 1;
  }
  const item = items[at];
  if (!item) return;
  last = item.id;
  item.tabIndex = -1;
  item.focus({ preventScroll: true });
  item.scrollIntoView({ block: item.matches("section") ? "start" : "center" });
};
const step = by => {
  const found = parts();
  if (found.length) return go(found, partOf(here()), by);
  go([...document.querySelectorAll(ROWS)], here().closest(ROWS), by);
};
const file = by => go([...document.querySelectorAll("section.file")], here().closest("section.file"), by);

// The element that the focus is in, from the innermost: a part, a row of a list, a file.
const scopes = () => {
  const part = partOf(here());
  return [...(part ? rowsOf(part) : [here().closest(ROWS)]), here().closest("section.file")?.querySelector("h3")].filter(Boolean);
};
const call = () => {
  for (const scope of scopes()) {
    const link = scope.querySelector("a.num[href*='/c/']");
    if (link) return link;
  }
  return null;
};
const viewed = () => {
  const part = partOf(here());
  const around = part ? rowsOf(part) : scopes();
  for (const one of around) {
    const button = one.querySelector(part ? ".viewed-toggle" : ".viewed-toggle, .viewed-file");
    if (button) return button.click();
  }
};
const undo = () => {
  const ticked = document.querySelector(".undo-ticked");
  const boxes = ticked?.form ? [...ticked.form.elements].filter(one => one.type === "checkbox") : [];
  if (ticked && !ticked.disabled && (!boxes.length || boxes.some(one => one.checked))) return ticked.click();
  const number = call()?.pathname.match(/\/c\/(\d+)$/)?.[1];
  const plan = document.body.dataset.plan;
  if (number && plan) location.assign(plan + number);
  else if (!number) document.querySelector(".box a[href*='/plan?verb=revert']")?.click();
};
const find = () => {
  const field = document.querySelector("[role=search] input:not([type=hidden])");
  if (field) {
    field.focus();
    field.select();
  } else if (document.body.dataset.find) location.assign(document.body.dataset.find);
};

const KEYS = {
  j: () => step(1), k: () => step(-1), n: () => file(1), p: () => file(-1),
  v: viewed, c: () => call()?.click(), u: undo, "/": find, "?": () => list.togglePopover?.(),
};
export const press = key => {
  if (key === "?" || !list.matches(":popover-open")) KEYS[key]();
};
