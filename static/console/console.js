// What the pages gain with JavaScript: running times, dialogs, menus, copying. live.js keeps pages fresh, keys.js knows the
// keys. Every page works without them.
(() => {
  "use strict";
  const dialog = document.getElementById("dialog");
  const TEXTS = JSON.parse(document.body.dataset.texts);
  let offset = 0; // the server's clock minus this browser's, in milliseconds

  function readClock(root) {
    const holder = root.matches && root.matches("[data-now]") ? root : root.querySelector("[data-now]");
    if (holder) offset = Date.parse(holder.dataset.now) - Date.now();
  }

  // A text of the page's language; messaging/console/languages.py has them all.
  function told(name, values = {}) {
    return TEXTS[name].replace(/\{(\w+)\}/g, (all, key) => values[key]);
  }

  function span(seconds) {
    let rest = Math.max(0, Math.floor(seconds));
    const parts = [];
    for (const [unit, name] of [[86400, "days"], [3600, "hours"], [60, "minutes"], [1, "seconds"]]) {
      const count = Math.floor(rest / unit);
      rest -= count * unit;
      if (count || parts.length) parts.push([count, name]);
      if (parts.length === 2) break;
    }
    if (parts.length === 2 && parts[1][0] === 0) parts.pop();
    if (!parts.length) parts.push([0, "seconds"]);
    return parts.map(([count, name]) => told(name, { count })).join(" ");
  }

  function runTimes() {
    for (const one of document.querySelectorAll("time[data-live]")) {
      const away = (Date.parse(one.dateTime) - Date.now() - offset) / 1000;
      const text = one.dataset.live === "ago" ? told("ago", { time: span(-away) })
        : away >= 1 ? told("in", { time: span(away) }) : told("now");
      if (one.textContent !== text) one.textContent = text;
    }
  }

  function say(text) {
    const place = document.getElementById("announce");
    if (place) place.textContent = text;
  }

  window.rmhub = { readClock, span, runTimes, say, told };

  // The browser's own zone, for those who want it: the server cannot know it otherwise.
  function tellZone() {
    const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "";
    for (const place of document.querySelectorAll("[data-local-zone]")) place.textContent = zone;
    if (!/^[A-Za-z0-9_+/-]{1,64}$/.test(zone) || document.cookie.split("; ").includes("rmhub_zone=" + zone)) return;
    document.cookie = "rmhub_zone=" + zone + "; path=/; max-age=31536000; samesite=lax" +
      (location.protocol === "https:" ? "; secure" : "");
    const kept = document.cookie.split("; ").includes("rmhub_zone=" + zone);
    if (kept && document.body.dataset.zone === "local" && !document.getElementById("form-errors")) location.reload();
  }

  function closeMenus(but, refocus) {
    for (const open of document.querySelectorAll("details.menu[open], details.nav-toggle[open]")) {
      if (but && open.contains(but)) continue;
      open.open = false;
      if (refocus) open.querySelector("summary").focus();
    }
  }

  // Dialogs: links lead to a page of their own; here the page's form comes into a frame. Its form is an ordinary one.
  function openDialog(link) {
    window.htmx.ajax("GET", link.href, { target: "#dialog", swap: "innerHTML" }).then(() => {
      const title = dialog.querySelector("#dialog-title");
      if (!title) { window.location.assign(link.href); return; }
      dialog.setAttribute("aria-label", title.textContent);
      offerReasons(dialog);
      if (!dialog.open) dialog.showModal();
      const first = dialog.querySelector("[autofocus]");
      if (first) first.focus();
    }, () => window.location.assign(link.href));
  }

  // Reasons that are often given: a press writes one, and it may be worked over.
  function offerReasons(root) {
    for (const one of root.querySelectorAll("[data-presets]")) one.hidden = false;
  }

  function copy(button) {
    navigator.clipboard.writeText(document.querySelector(button.dataset.copy).textContent.trim()).then(() => {
      say(told("copied"));
      button.classList.add("copied");
      setTimeout(() => button.classList.remove("copied"), 1500);
    });
  }

  // What a dialog asked for and was refused stays in it, and says why.
  document.body.addEventListener("htmx:beforeSwap", (event) => {
    const { target, xhr } = event.detail;
    if (target !== dialog || ![409, 422].includes(xhr.status)) return;
    event.detail.shouldSwap = true;
    event.detail.isError = false;
  });
  document.body.addEventListener("htmx:afterSettle", (event) => { // by then a field with autofocus has had its turn
    if (event.detail.target !== dialog) return;
    offerReasons(dialog);
    const wrong = dialog.querySelector("#form-errors");
    if (wrong) wrong.focus();
  });
  document.body.addEventListener("htmx:afterRequest", (event) => {
    const form = event.detail.elt;
    if (form.dataset && form.dataset.sent) delete form.dataset.sent;
    if (event.detail.target === dialog && event.detail.failed && ![401, 409, 422].includes(event.detail.xhr.status))
      say(told("failed"));
  });

  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-dialog]");
    if (link && dialog && window.htmx && !event.ctrlKey && !event.metaKey && !event.shiftKey && event.button === 0) {
      event.preventDefault();
      openDialog(link);
      return;
    }
    const open = event.target.closest("dialog[open]");
    if (open && (event.target.closest("[data-close]") || event.target === open)) {
      event.preventDefault();
      open.close();
      return;
    }
    const preset = event.target.closest("[data-preset]");
    if (preset && preset.form) {
      const field = preset.form.elements.reason;
      field.value = preset.textContent.trim();
      field.focus();
    }
    const button = event.target.closest("[data-copy]");
    if (button) copy(button);
    closeMenus(event.target, false);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") closeMenus(null, true);
    const meant = event.key === "Enter" && !event.isComposing && event.target.dataset && event.target.dataset.enter;
    if (!meant) return;
    event.preventDefault();
    document.getElementById(meant).click();
  });
  // A form that is being sent is not sent twice.
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.method !== "post") return;
    if (form.dataset.sent) { event.preventDefault(); return; }
    form.dataset.sent = "1";
  });
  window.addEventListener("pageshow", () => {
    for (const form of document.querySelectorAll("form[data-sent]")) delete form.dataset.sent;
  });

  // Groups of the navigation that are folded stay so; the server folds them on the next page.
  document.addEventListener("toggle", (event) => {
    if (!event.target.matches(".shell-nav .nav-group, .nav-sheet .nav-group")) return;
    const folded = new Set((document.cookie.match(/(?:^|; )rmhub_nav=([\w.-]*)/) || ["", ""])[1].split(".").filter(Boolean));
    folded[event.target.open ? "delete" : "add"](event.target.dataset.group);
    document.cookie = "rmhub_nav=" + [...folded].join(".") + "; path=/; max-age=31536000; samesite=lax" +
      (location.protocol === "https:" ? "; secure" : "");
  }, true);

  if (navigator.clipboard) for (const one of document.querySelectorAll("[data-copy]")) one.hidden = false;
  offerReasons(document);
  const errors = document.getElementById("form-errors");
  if (errors) errors.focus();
  readClock(document.body);
  tellZone();
})();
