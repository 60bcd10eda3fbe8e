// What the pages gain with JavaScript: live fragments with a pause and a stale sign, running times, dialogs, copying.
// Every page works without it.
(() => {
  "use strict";
  const STALE_SECONDS = 10;
  const POINTER_SECONDS = 4;
  const region = document.querySelector("[data-live-region]");
  const sign = document.getElementById("live-sign");
  const dialog = document.getElementById("dialog");
  let paused = false;
  let fresh = Date.now();
  let pointed = 0;
  let offset = 0; // the server's clock minus this browser's, in milliseconds

  const clock = () => Date.now() + offset;

  function readClock(root) {
    const holder = root.matches && root.matches("[data-now]") ? root : root.querySelector("[data-now]");
    if (holder) offset = Date.parse(holder.dataset.now) - Date.now();
  }

  function span(seconds) {
    let rest = Math.max(0, Math.floor(seconds));
    const parts = [];
    for (const [unit, name] of [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]]) {
      const count = Math.floor(rest / unit);
      rest -= count * unit;
      if (count || parts.length) parts.push([count, name]);
      if (parts.length === 2) break;
    }
    if (parts.length === 2 && parts[1][0] === 0) parts.pop();
    return parts.map(([count, name]) => count + " " + name).join(" ") || "0 s";
  }

  function runTimes() {
    for (const one of document.querySelectorAll("time[data-live]")) {
      const away = (Date.parse(one.dateTime) - clock()) / 1000;
      const text = one.dataset.live === "ago" ? span(-away) + " ago" : away >= 1 ? "in " + span(away) : "now";
      if (one.textContent !== text) one.textContent = text;
    }
  }

  function showSign() {
    if (!sign) return;
    const age = (Date.now() - fresh) / 1000;
    let state = "live", text = "Live";
    if (paused) [state, text] = ["paused", "Paused " + span(age)];
    else if (held()) [state, text] = ["held", "Held while you point"];
    else if (age > STALE_SECONDS) [state, text] = ["stale", "Stale " + span(age)];
    if (sign.dataset.state !== state) sign.dataset.state = state;
    const place = document.getElementById("live-text");
    if (place.textContent !== text) place.textContent = text;
  }

  // Rows must not change places under the pointer, nor lose what is being selected or read.
  function held() {
    if (!region) return false;
    const chosen = document.getSelection();
    if (chosen && !chosen.isCollapsed && region.contains(chosen.anchorNode)) return true;
    if (region.querySelector("details[open]")) return true;
    return "hold" in region.dataset && Date.now() - pointed < POINTER_SECONDS * 1000;
  }

  function announce(before, root) {
    const now = root.querySelector("[data-announce]");
    const place = document.getElementById("announce");
    if (now && place && before !== now.textContent) place.textContent = now.textContent;
  }

  if (region && sign) {
    sign.hidden = false;
    region.addEventListener("pointermove", () => { pointed = Date.now(); });
    const button = document.getElementById("live-pause");
    button.addEventListener("click", () => {
      paused = !paused;
      button.setAttribute("aria-pressed", String(paused));
      button.querySelector("span").textContent = paused ? "Go on" : "Pause";
      showSign();
    });
    let said = "";
    document.body.addEventListener("htmx:beforeRequest", (event) => {
      if (event.detail.elt !== region) return;
      if (paused || document.hidden || held() || (dialog && dialog.open)) event.preventDefault();
      const line = region.querySelector("[data-announce]");
      said = line ? line.textContent : "";
    });
    document.body.addEventListener("htmx:beforeSwap", (event) => {
      // The answer may come when the pointer is back over the rows.
      if (event.detail.target === region && (paused || held())) event.detail.shouldSwap = false;
    });
    document.body.addEventListener("htmx:afterSwap", (event) => {
      if (event.detail.target !== region) return;
      fresh = Date.now();
      readClock(region);
      announce(said, region);
      runTimes();
      showSign();
    });
  }

  // Dialogs: links lead to a page of their own; here the page's form comes into a frame. Its form is an ordinary one.
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-dialog]");
    if (link && dialog && window.htmx && !event.ctrlKey && !event.metaKey && !event.shiftKey && event.button === 0) {
      event.preventDefault();
      window.htmx.ajax("GET", link.href, { target: "#dialog", swap: "innerHTML" }).then(() => {
        const title = dialog.querySelector("#dialog-title");
        if (!title) { window.location.assign(link.href); return; }
        dialog.setAttribute("aria-label", title.textContent);
        if (!dialog.open) dialog.showModal();
        const first = dialog.querySelector("[autofocus]");
        if (first) first.focus();
      }, () => window.location.assign(link.href));
      return;
    }
    if (dialog && dialog.open && (event.target.closest("[data-close]") || event.target === dialog)) {
      event.preventDefault();
      dialog.close();
      return;
    }
    const copy = event.target.closest("[data-copy]");
    if (copy) {
      navigator.clipboard.writeText(document.querySelector(copy.dataset.copy).textContent.trim()).then(() => {
        document.getElementById("announce").textContent = "Copied.";
        copy.classList.add("copied");
        setTimeout(() => copy.classList.remove("copied"), 1500);
      });
    }
    for (const open of document.querySelectorAll("details.menu[open], details.nav-toggle[open]")) {
      if (!open.contains(event.target)) open.open = false;
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      for (const open of document.querySelectorAll("details.menu[open], details.nav-toggle[open]")) {
        open.open = false;
        open.querySelector("summary").focus();
      }
    }
    const typing = event.target.closest("input, textarea, select, [contenteditable]");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      const search = document.getElementById("search");
      if (search) { event.preventDefault(); search.focus(); search.select(); }
    }
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

  if (navigator.clipboard) for (const one of document.querySelectorAll("[data-copy]")) one.hidden = false;
  const errors = document.getElementById("form-errors");
  if (errors) errors.focus();
  readClock(document.body);
  setInterval(() => { if (!paused) runTimes(); showSign(); }, 1000);
})();
