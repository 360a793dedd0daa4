// What htmx leaves unsaid. Every page and action works without this file.
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

// Times are UTC; the reader's own stands beside it where somebody points at one.
const local = event => {
  const time = event.target.closest?.("time[datetime*='T']");
  if (!time || time.dataset.local) return;
  const at = new Date(time.dateTime);
  if (isNaN(at)) return;
  time.dataset.local = "1";
  const zone = { dateStyle: "medium", timeStyle: "long" };
  time.title = at.toLocaleString(undefined, zone) + "\n" + (time.title || time.textContent.trim() + " UTC");
};
document.addEventListener("pointerover", local);
document.addEventListener("focusin", local);

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
let keys;
const keysSwitch = document.querySelector("#keys-off input");
document.addEventListener("keydown", event => {
  if (!keysSwitch.checked || event.defaultPrevented || event.isComposing) return;
  if (event.ctrlKey || event.altKey || event.metaKey || !/^[jknpvcu/?]$/.test(event.key)) return;
  if (event.target.closest?.(FIELDS)) return;
  event.preventDefault();
  if (keys) return keys.press(event.key);
  import(keysFile).then(loaded => {
    keys = loaded;
    keys.press(event.key);
  });
});
document.getElementById("keys-off").hidden = false;
keysSwitch.addEventListener("change", async () => {
  const body = new URLSearchParams({ keys: keysSwitch.checked ? "on" : "off" });
  const answer = await fetch("/keys", { method: "POST", body }).catch(() => null);
  document.querySelector("#keys-off [role=status]").textContent = answer?.ok ? "" : "This holds for this page only: it could not be noted.";
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
