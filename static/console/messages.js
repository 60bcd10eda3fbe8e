// The list of messages: Space shows the focused row's message in short, as its eye button does.
(() => {
  "use strict";
  document.addEventListener("keydown", (event) => {
    if (event.key !== " " || event.ctrlKey || event.metaKey || event.altKey) return;
    const row = event.target.closest("tr");
    // Space presses buttons and ticks boxes by itself, and writes in fields.
    if (!row || !event.target.matches("a[data-open]")) return;
    const look = row.querySelector("[data-peek]");
    if (look) { event.preventDefault(); look.click(); }
  });
})();
