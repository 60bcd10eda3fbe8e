// Starts Swagger UI. A file of its own, because the Content-Security-Policy runs no script that is written into a page.
"use strict";

window.addEventListener("DOMContentLoaded", () => {
  const place = document.getElementById("swagger-ui");
  SwaggerUIBundle({
    url: place.dataset.document,
    domNode: place,
    presets: [SwaggerUIBundle.presets.apis],
    layout: "BaseLayout",
    deepLinking: true,
    docExpansion: "none",
    validatorUrl: null, // the default sends the document to a public server
    requestInterceptor: (request) => {
      // With a console session, what changes something shows the CSRF token.
      if (request.method && !["GET", "HEAD"].includes(request.method.toUpperCase())) {
        request.headers["X-CSRFToken"] = place.dataset.csrf;
      }
      return request;
    },
  });
});
