"""Interrupts at every step of a function.

Python looks for signals as a function begins and after each call of a function in C. So the steps at which an
interrupt can strike are known, and each of them can be tried.
"""

import sys


class Interrupter:
    """Raises KeyboardInterrupt at the n-th step of a function at which a signal would be noticed.

    And, if told so, once more as the n-th function begins after that.
    """

    def __init__(self, function, step, later=None):
        self._code, self._left, self._later, self._run = function.__code__, step, later, None
        # Whether it has done so.
        self.struck = False

    def call(self, act):
        """Call, and be done when it returns; whether it returned."""
        sys.setprofile(self._watch)
        try:
            act()
            return True
        except KeyboardInterrupt:
            return False
        except TypeError as error:
            # What Python 3.11 makes of an exception that a hook raises as a property is read.
            if not self.struck or "'traceback' object" not in str(error):
                raise
            return False
        finally:
            sys.settrace(None)
            sys.setprofile(None)

    def _watch(self, frame, event, _arg):
        if self._run is None and event == "call" and frame.f_code is self._code:
            self._run = frame
        if self._run is frame and event == "return":
            self._left = -1
        # Not as functions of the standard library begin: there Python 3.11 cannot take it from every hook.
        if self._run is not None and (event == "c_return" or (event == "call" and _is_ours(frame))):
            self._left -= 1
            if self._left == 0:
                self.struck = True
                # This hook ends with what it raises.
                if self._later is not None:
                    sys.settrace(self._watch_again)
                raise KeyboardInterrupt

    def _watch_again(self, frame, event, _arg):
        if event == "call" and _is_ours(frame):
            self._later -= 1
            if self._later == 0:
                raise KeyboardInterrupt


def _is_ours(frame):
    return "holdfast" in frame.f_code.co_filename
