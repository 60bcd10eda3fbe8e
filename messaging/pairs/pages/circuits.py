"""Partners' servers that could not be reached lately: the list, and having one tried now."""

from __future__ import annotations

from django.contrib import messages as notices
from django.http import HttpRequest, HttpResponse

from messaging.console.access import actor, requires
from messaging.console.rendering import page, problems, see_other
from messaging.engine.circuits import circuit_reset
from messaging.exceptions import InvalidSubmission
from messaging.pairs.selectors import circuits

PRESETS = ("Partner says that the server is up", "Address or firewall corrected", "A look at whether it is back")


@requires("pairs:read")
def circuit_list(request: HttpRequest) -> HttpResponse:
    """What is left alone first, then what has only failed."""
    context = {"rows": circuits.rows(circuits.circuits())}
    return page(
        request, "console/pairs/circuits.html", context, fragments={"live-circuits": "console/pairs/circuits_live.html"}
    )


@requires("pairs:operate", methods=("GET", "POST"))
def circuit_try(request: HttpRequest, reference: str) -> HttpResponse:
    """The dialog, and letting the next attempt through."""
    row = circuits.rows([circuits.circuit(reference)])[0]
    errors: list[tuple[str, str]] = []
    status = 200
    if request.method == "POST":
        reason = request.POST.get("reason", "").strip().replace("\x00", "")
        try:
            circuit_reset(circuit_id=reference, actor=actor(request), reason=reason)
        except InvalidSubmission as error:
            errors, status = problems(error), 422
        else:
            notices.success(request, f"The next attempt to {row.circuit.address} is let through.")
            return see_other("console:circuits")
    context = {"row": row, "errors": errors, "given": request.POST, "presets": PRESETS}
    return page(
        request,
        "console/pairs/circuit_try.html",
        context,
        fragments={"dialog": "console/pairs/circuit_try_form.html"},
        status=status,
    )
