// Tells the viewer when the page can no longer follow: the session has ended, or the controller does not answer.
// Dash itself keeps silent about a failed update, and the page would look alive while it is not.
(function () {
  "use strict";
  const UPDATES = "/_dash-update-component";
  // Longer than the server's own deadlines together.
  const DEADLINE_MS = 30000;
  const send = window.fetch.bind(window);

  function signInAddress() {
    return "/login?next=" + encodeURIComponent(window.location.pathname + window.location.search);
  }

  function tell(text, link) {
    const bar = document.getElementById("connection");
    if (!bar) return;
    bar.textContent = text;
    bar.hidden = !text;
    if (link) {
      const sign = document.createElement("a");
      sign.href = signInAddress();
      sign.textContent = link;
      bar.append(" ", sign);
    }
  }

  window.fetch = async function (resource, options) {
    const address = typeof resource === "string" ? resource : resource.url;
    if (!address.includes(UPDATES)) return send(resource, options);
    try {
      const answer = await send(resource, { ...options, signal: AbortSignal.timeout(DEADLINE_MS) });
      if (answer.ok) {
        tell("");
        return answer;
      }
      if (answer.status === 401) tell("Your session has ended.", "Sign in again");
      else tell("The controller refused an update (status " + answer.status + "). Reload the page.");
    } catch (error) {
      tell("The controller does not answer. The page tries again by itself.");
    }
    // "Nothing new": after a fetch that failed, dash would never look again.
    return new Response(null, { status: 204 });
  };

  // A sign-in link on a page leads back to that page.
  document.addEventListener("click", function (event) {
    const link = event.target.closest && event.target.closest("a.sign-in");
    if (link) link.href = signInAddress();
  });
})();
