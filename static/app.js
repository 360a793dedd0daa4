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
