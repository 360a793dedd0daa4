// What htmx leaves unsaid. Every page and action works without this file, which is run before the page is there.
document.addEventListener("htmx:error", event => {
  const context = event.detail?.ctx;
  if (!context || context.response || context.sourceEvent?.type === "every") return;
  const said = document.createElement("p");
  said.className = "note bad";
  said.tabIndex = -1;
  said.textContent = "The dashboard did not answer. Whether anything was done is not known: reload this page when it runs again, to see what is on record.";
  document.getElementById("notice").replaceChildren(said);
  said.focus();
});

// What asks again and again rests while nobody looks.
document.addEventListener("htmx:before:request", event => {
  if (document.hidden && event.detail?.ctx?.sourceEvent?.type === "every") event.preventDefault();
});

// Times are on record in UTC, and are read in the reader's own zone: before a page is first painted,
// and in whatever is put into it later. Their titles stay in UTC.
(() => {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (zone === "UTC") return;
  const two = number => String(number).padStart(2, "0");
  // Whether an hour alone stands below its day. A row of another day than the rows above it gets
  // its day above it; what is told within a row has it beside it.
  const isBelow = (time, day) => {
    const row = time.closest(".calls tr, .steps > li");
    let above = row;
    while (above && !above.matches(".of")) above = above.previousElementSibling;
    if (!above) return time.dateTime.startsWith(day);
    if (above.querySelector("time").textContent === day) return true;
    if (row.matches(".nested") || row.querySelector("time") !== time) return false;
    const own = above.cloneNode(true);
    Object.assign(own.querySelector("time"), { textContent: day, dateTime: time.dateTime, title: time.title });
    row.before(own);
    return true;
  };
  const localize = time => {
    const at = new Date(time.dateTime);
    time.dataset.local = "";
    if (isNaN(at)) return;
    const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
    const clock = [at.getHours(), at.getMinutes(), at.getSeconds()].map(two).join(":");
    const told = time.textContent;
    if (!time.title) time.title = told.trim() + " UTC";
    const apart = /\d-\d/.test(told) || isBelow(time, day) ? "" : day.slice(5) + " ";
    const texts = document.createTreeWalker(time, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      const text = texts.currentNode;
      text.data = text.data.replace(/\d{4}-\d\d-\d\d/, day).replace(/^\d\d-\d\d\b/, day.slice(5)).replace(/\d\d:\d\d:\d\d/, apart + clock);
    }
  };
  // a form's field of this class says in which zone a time in the form is meant
  const name = said => {
    Object.assign(said, { textContent: "local", title: zone, value: zone }).dataset.local = "";
  };
  const show = () => {
    const found = [...document.querySelectorAll("time[datetime*='T']:not([data-local]), .zone:not([data-local])")];
    if (document.readyState === "loading") found.pop(); // its text may still be on the way
    for (const one of found) one.localName === "time" ? localize(one) : name(one);
  };
  new MutationObserver(show).observe(document, { childList: true, subtree: true });
  document.addEventListener("readystatechange", show);
})();

// Long work says how far it is, until its answer takes the place of this page.
document.addEventListener("submit", event => {
  const form = event.target;
  if (!form.dataset.progress || form.elements.job) return;
  const job = document.createElement("input");
  Object.assign(job, { type: "hidden", name: "job", value: String(Math.random()).slice(2) });
  const said = document.createElement("p");
  said.className = "note";
  said.setAttribute("role", "status");
  said.textContent = "At work …";
  form.append(job, said);
  const look = async () => {
    try {
      const answer = await fetch(form.dataset.progress + "?job=" + job.value);
      if (answer.status === 200) said.textContent = await answer.text();
    } catch {
      return;
    }
    setTimeout(look, 500);
  };
  setTimeout(look, 300);
});

// Keys for reading without a mouse. What they do is a file of its own, loaded with the first of them.
const keysFile = document.currentScript.dataset.keys;
const FIELDS = "select, textarea, input:not([type=checkbox], [type=radio]), [contenteditable]";
let keys, keysSwitch;
document.addEventListener("keydown", event => {
  if (!keysSwitch?.checked || event.defaultPrevented || event.isComposing) return;
  if (event.ctrlKey || event.altKey || event.metaKey || !/^[jknpvcu/?]$/.test(event.key)) return;
  if (event.target.closest?.(FIELDS)) return;
  event.preventDefault();
  if (keys) return keys.press(event.key);
  import(keysFile).then(loaded => {
    keys = loaded;
    keys.press(event.key);
  });
});
document.addEventListener("DOMContentLoaded", () => {
  const off = document.getElementById("keys-off");
  keysSwitch = off.querySelector("input");
  off.hidden = false;
  keysSwitch.addEventListener("change", async () => {
    const body = new URLSearchParams({ keys: keysSwitch.checked ? "on" : "off" });
    const answer = await fetch("/keys", { method: "POST", body }).catch(() => null);
    off.querySelector("[role=status]").textContent = answer?.ok ? "" : "This holds for this page only: it could not be noted.";
  });
});

// On paper everything is open.
addEventListener("beforeprint", () => {
  for (const one of document.querySelectorAll("details:not([open])")) {
    one.open = true;
    one.dataset.printed = "";
  }
});
addEventListener("afterprint", () => {
  for (const one of document.querySelectorAll("details[data-printed]")) {
    one.open = false;
    delete one.dataset.printed;
  }
});
