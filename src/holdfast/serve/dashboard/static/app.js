// The script of the dashboard. Every page can be read without it; it adds live updates, local times, themes, copying,
// a question before something is deleted, and keys. It asks this server only.
"use strict";

(() => {
  const body = document.body;
  const base = body.dataset.base || "";
  const $ = (selector, within = document) => within.querySelector(selector);
  const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];
  const kept = {
    get: (name) => { try { return localStorage.getItem(`holdfast.${name}`); } catch { return null; } },
    set: (name, value) => { try { localStorage.setItem(`holdfast.${name}`, value); } catch { /* not allowed */ } },
  };

  // Theme: the system's, or one that the reader chose.
  const themes = ["system", "light", "dark"];
  const themeButton = $("#theme-toggle");
  const showTheme = (theme) => {
    if (theme === "system") document.documentElement.removeAttribute("data-theme");
    else document.documentElement.dataset.theme = theme;
    if (themeButton) { themeButton.hidden = false; themeButton.textContent = `Theme: ${theme}`; }
  };
  showTheme(themes.includes(kept.get("theme")) ? kept.get("theme") : "system");
  themeButton?.addEventListener("click", () => {
    const next = themes[(themes.indexOf(kept.get("theme") || "system") + 1) % themes.length];
    kept.set("theme", next);
    showTheme(next);
  });

  // Times: how long ago, local, or UTC.
  const forms = ["relative", "local", "utc"];
  const timesButton = $("#times-toggle");
  const skew = () => 0;
  const span = (ms) => {
    if (ms < 1000) return `${ms} ms`;
    if (ms < 10000) return `${(ms / 1000).toFixed(1)} s`;
    const s = Math.floor(ms / 1000);
    for (const [size, unit, below, part] of [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]]) {
      if (s >= size) {
        const rest = Math.floor((s % size) / below);
        return `${Math.floor(s / size)} ${unit}${rest && s < 10 * size ? ` ${rest} ${part}` : ""}`;
      }
    }
    return `${s} s`;
  };
  const showTimes = () => {
    const form = forms.includes(kept.get("times")) ? kept.get("times") : "relative";
    if (timesButton) { timesButton.hidden = false; timesButton.textContent = `Times: ${form}`; }
    const now = Date.now() + skew();
    for (const time of $$("time[data-ms]")) {
      const at = Number(time.dataset.ms);
      const ago = now - at;
      if (form === "utc") time.textContent = new Date(at).toISOString().replace("T", " ").slice(0, 19);
      else if (form === "local") time.textContent = new Date(at).toLocaleString();
      else time.textContent = Math.abs(ago) < 1000 ? "now" : ago > 0 ? `${span(ago)} ago` : `in ${span(-ago)}`;
    }
    for (const tick of $$("[data-clock]")) {
      const at = new Date(Number(tick.dataset.clock));
      tick.textContent = form === "utc" ? at.toISOString().slice(11, 16)
        : at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
    }
  };
  timesButton?.addEventListener("click", () => {
    kept.set("times", forms[(forms.indexOf(kept.get("times") || "relative") + 1) % forms.length]);
    showTimes();
  });
  showTimes();
  setInterval(showTimes, 5000);

  // Questions, copying, and all boxes at once.
  const say = (text) => {
    const notice = $("#notice");
    if (!notice) return;
    notice.textContent = text;
    notice.hidden = false;
    setTimeout(() => { notice.hidden = true; }, 2500);
  };
  document.addEventListener("submit", (event) => {
    const question = event.target.dataset.confirm;
    if (question && !window.confirm(question)) event.preventDefault();
  });
  const copy = async (text) => {
    try { await navigator.clipboard.writeText(text); say("Copied"); } catch { say("The browser does not allow copying"); }
  };
  document.addEventListener("click", (event) => {
    const button = event.target.closest(".copy-text");
    if (button) {
      const field = $(".copied", button.closest(".card"));
      if (field) copy(field.value);
      return;
    }
    const value = event.target.closest("[data-copy]");
    if (value && !window.getSelection().toString()) copy(value.dataset.copy);
  });
  // A log shows its end, and stays there while lines come, unless the reader has scrolled up.
  const isAtEnd = (box) => box.scrollHeight - box.scrollTop - box.clientHeight < 8;
  const following = new WeakSet();
  document.addEventListener("scroll", (event) => {
    const box = event.target;
    if (!box.matches?.(".log")) return;
    if (isAtEnd(box)) following.add(box); else following.delete(box);
  }, true);
  const seen = new WeakSet();
  const decorate = () => {
    for (const button of $$(".copy-text")) button.hidden = !$(".copied", button.closest(".card"));
    for (const box of $$(".log")) {
      if (!seen.has(box)) { seen.add(box); following.add(box); }
      if (following.has(box)) box.scrollTop = box.scrollHeight;
    }
  };
  decorate();

  // What an action did is told once: its words leave the address, and the line goes after a while.
  const address = new URL(location.href);
  if (address.searchParams.has("done")) {
    for (const name of ["done", "count", "left"]) address.searchParams.delete(name);
    history.replaceState(null, "", address);
  }
  const notice = $(".notice");
  if (notice) setTimeout(() => notice.remove(), 6000);

  // Keys: / goes to the search, g and a letter to a page, p pauses.
  const pages = { o: "/", j: "/jobs", t: "/tasks", s: "/schedules", l: "/limits", w: "/workers", h: "/handlers", c: "/consumers", n: "/journal", e: "/settings" };
  let awaiting = false;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
    if (awaiting) {
      awaiting = false;
      if (event.key in pages) location.assign(base + pages[event.key] + whose);
      return;
    }
    if (event.key === "g") awaiting = true;
    else if (event.key === "p") $("#live-toggle")?.click();
    else if (event.key === "/") {
      const field = $("#q");
      if (field) { event.preventDefault(); field.focus(); } else location.assign(`${base}/jobs${whose}`);
    }
  });
  const tenant = new URLSearchParams(location.search).get("tenant");
  const whose = tenant === null ? "" : `?tenant=${encodeURIComponent(tenant)}`;

  // Live: the server says that something has changed, and the page is read again and put in place.
  const subject = body.dataset.live;
  const state = $("#live-state"), toggle = $("#live-toggle");
  if (subject === undefined || !window.EventSource || !state || !toggle) return;
  let source = null, due = false, busy = false, last = 0, missed = false;
  const LEAST_MS = 1000, IDLE_MS = 15000;
  const isEditing = () => {
    const active = document.activeElement;
    const edited = active && active.matches("#live input:not([type=checkbox]), #live textarea, #live select");
    return edited || $$("#live input[type=checkbox]:checked").some((box) => box.name === "id" || box.name === "all")
      || !window.getSelection().isCollapsed;
  };
  const refresh = async () => {
    if (!source || busy || document.hidden) return;
    missed = isEditing();
    if (missed) return;
    const wait = last + LEAST_MS - Date.now();
    if (wait > 0) { if (!due) { due = true; setTimeout(() => { due = false; refresh(); }, wait); } return; }
    busy = true;
    last = Date.now();
    try {
      const reply = await fetch(location.href, { headers: { Accept: "text/html" }, redirect: "error" });
      if (!reply.ok) { if (reply.status === 404) stop("Gone"); return; }
      const page = new DOMParser().parseFromString(await reply.text(), "text/html");
      const fresh = page.getElementById("live");
      if (fresh && source && !isEditing()) {
        const told = $("#live > .notice");
        told?.remove();
        morph($("#live"), document.importNode(fresh, true));
        if (told) $("#live").prepend(told);
        showTimes();
        decorate();
        body.dispatchEvent(new CustomEvent("holdfast:updated"));
        body.dataset.updates = String(Number(body.dataset.updates || 0) + 1);
        if (page.body.dataset.live === undefined) stop("Ended");
      }
    } catch { /* the server is away: the event source connects again */ } finally { busy = false; }
  };
  // Change one tree into another without touching what is alike: focus, folds and scrolling stay.
  const morph = (old, fresh) => {
    if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) { old.replaceWith(fresh); return; }
    if (old.nodeType !== Node.ELEMENT_NODE) { if (old.data !== fresh.data) old.data = fresh.data; return; }
    for (const { name } of [...old.attributes]) {
      if (!fresh.hasAttribute(name) && !(name === "open" || name === "hidden")) old.removeAttribute(name);
    }
    for (const { name, value } of [...fresh.attributes]) {
      if (name === "open") continue;
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    const olds = [...old.childNodes], news = [...fresh.childNodes];
    news.forEach((child, at) => { if (at < olds.length) morph(olds[at], child); else old.append(child); });
    olds.slice(news.length).forEach((child) => child.remove());
  };
  const show = (text, on) => { state.textContent = text; state.classList.toggle("off", !on); };
  const stop = (text) => { source?.close(); source = null; show(text, false); toggle.textContent = "Resume"; };
  const start = () => {
    const words = new URLSearchParams(subject === "counts" ? {} : /^\d+$/.test(subject) ? { job: subject } : { of: subject });
    if (tenant !== null) words.set("tenant", tenant);
    source = new EventSource(`${base}/live?${words}`);
    source.addEventListener("open", () => show("Live", true));
    source.addEventListener("changed", refresh);
    source.addEventListener("error", () => show("Connecting…", false));
    toggle.textContent = "Pause";
  };
  state.hidden = toggle.hidden = false;
  toggle.addEventListener("click", () => {
    if (source) { kept.set("paused", "yes"); stop("Paused"); } else { kept.set("paused", "no"); start(); refresh(); }
  });
  if (kept.get("paused") === "yes") stop("Paused"); else start();
  setInterval(() => { if (Date.now() - last >= IDLE_MS) refresh(); }, IDLE_MS / 3);
  document.addEventListener("focusout", () => setTimeout(() => { if (missed) refresh(); }, 0));
  document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
  window.addEventListener("pagehide", () => source?.close());
})();
