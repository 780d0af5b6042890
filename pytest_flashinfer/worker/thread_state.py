"""What a call left switched on in its thread: it would run amid the harness's own work, after the clock has stopped.

A callback of the garbage collector and a timer's signal would run there as well.

The functions that ask are bound at import, before foreign code can replace them.
"""

from __future__ import annotations

import gc
import signal
import sys
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._device import DeviceContext

if TYPE_CHECKING:
    from collections.abc import Callable

_PROFILE, _SET_PROFILE = sys.getprofile, sys.setprofile
_TRACE, _SET_TRACE = sys.gettrace, sys.settrace
_MONITORING: Any = getattr(sys, "monitoring", None)  # Python 3.12
_TOOL = _MONITORING.get_tool if _MONITORING else None
_TOOLS = range(6)
_DISPATCH = (torch._C._len_torch_dispatch_stack, torch._C._pop_torch_dispatch_stack)  # noqa: SLF001 - no other way
_FUNCTION = (torch._C._len_torch_function_stack, torch._C._pop_torch_function_stack)  # noqa: SLF001 - to ask
_PUSH_DISPATCH = torch._C._push_on_torch_dispatch_stack  # noqa: SLF001
_PUSH_FUNCTION = torch._C._push_on_torch_function_stack  # noqa: SLF001
_CALLBACKS = gc.callbacks
_TIMER, _SET_TIMER = signal.getitimer, signal.setitimer
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_TEXT = "left {} switched on when it returned: it runs after the clock has stopped; switch off what a call switches on"


class Leftovers:
    """Keeps what is switched on in this thread as it was when this was made, before any foreign code came.

    torch's modes that were on after a solution's import are set aside while none of its calls runs.
    """

    def __init__(self) -> None:
        self._profile, self._trace, self._tools = _PROFILE(), _TRACE(), _named_tools()
        self._callbacks = [*_CALLBACKS]
        self._depths = _DISPATCH[0](), _FUNCTION[0]()
        self._aside: tuple[list[Any], list[Any]] = ([], [])

    def set_aside(self) -> None:
        """Switch off what the import of a solution left on; its modes are on again in its calls."""
        self._aside = self._modes()
        self._hooks()

    def put_back(self) -> None:
        """Switch on again, ahead of a call, what was set aside; what a call that raised left on is taken off first."""
        self._modes()
        self._hooks()
        for modes, push in zip(self._aside, (_PUSH_DISPATCH, _PUSH_FUNCTION), strict=True):
            for mode in modes:
                push(mode)

    def take(self) -> list[str]:
        """Switch off what is on since a call began; returns a line for each thing that was not on before it.

        `torch.set_default_device` is a mode that computes nothing: it is kept for the calls to come.
        """
        found = []
        dispatch, function = self._modes()
        if _new(dispatch, self._aside[0]):
            found.append(_TEXT.format("a TorchDispatchMode"))
        if [mode for mode in _new(function, self._aside[1]) if type(mode) is not DeviceContext]:
            found.append(_TEXT.format("a TorchFunctionMode"))
        self._aside = (
            [mode for mode in dispatch if not _new([mode], self._aside[0])],
            [mode for mode in function if type(mode) is DeviceContext or not _new([mode], self._aside[1])],
        )
        return found + [_TEXT.format(name) for name in self._hooks()]

    def _modes(self) -> tuple[list[Any], list[Any]]:
        """Take off the modes above those that were there from the start, outermost first."""
        dispatch = [_DISPATCH[1](None) for _ in range(_DISPATCH[0]() - self._depths[0])]
        function = [_FUNCTION[1]() for _ in range(_FUNCTION[0]() - self._depths[1])]
        return dispatch[::-1], function[::-1]

    def _hooks(self) -> list[str]:
        """Restore the interpreter's hooks; returns the names of those that were others."""
        found = []
        if _PROFILE() is not self._profile:
            _SET_PROFILE(self._profile)
            found.append("a profile function (sys.setprofile)")
        if _TRACE() is not self._trace:
            _SET_TRACE(self._trace)
            found.append("a trace function (sys.settrace)")
        if _TOOL is not None and (foreign := _named_tools() - self._tools):
            for tool, _ in foreign:
                _switch_off(tool)
            found.append("a tool of sys.monitoring")
        if callbacks := _new(_CALLBACKS, self._callbacks):
            _CALLBACKS[:] = [each for each in _CALLBACKS if not any(each is other for other in callbacks)]
            found.append("a callback of the garbage collector")
        if timers := [which for which in _TIMERS if _TIMER(which)[0]]:
            for which in timers:
                _SET_TIMER(which, 0)
            found.append("a timer (signal.setitimer)")
        return found


def _new(modes: list[Any], known: list[Any]) -> list[Any]:
    return [mode for mode in modes if not any(mode is each for each in known)]


def _named_tools() -> set[tuple[int, str]]:
    """Return the ids of the tools of sys.monitoring in use, with their names."""
    ask: Callable[[int], str | None] | None = _TOOL
    return set() if ask is None else {(tool, name) for tool in _TOOLS if (name := ask(tool)) is not None}


def _switch_off(tool: int) -> None:
    """Take a tool's callbacks, events and name."""
    events = [value for value in vars(_MONITORING.events).values() if isinstance(value, int)]
    for event in events:
        if event and not event & (event - 1):
            _MONITORING.register_callback(tool, event, None)
    _MONITORING.set_events(tool, 0)
    _MONITORING.free_tool_id(tool)
