"""The power supply step: mains or battery. Recorded; only a person can plug it in."""

from __future__ import annotations

from env.knob import Knob
from env.step import State

SUPPLIES = "/sys/class/power_supply"
OUTSIDE = frozenset({"Mains", "USB", "Wireless"})


class Power(Knob):
    """On battery the firmware lowers clocks whatever the governor says."""

    name = "power"
    why = "on battery the firmware lowers the clock whatever the governor says"

    def probe(self) -> State:
        """Whether the machine is fed from outside."""
        files = self.host.files
        online, discharging, any_battery = [], [], False
        for path in files.glob(SUPPLIES, "*"):
            kind = files.read(f"{path}/type").value
            if kind in OUTSIDE:
                online.append(files.read(f"{path}/online").value == "1")
            elif kind == "Battery" and files.read(f"{path}/scope").value != "Device":  # a mouse has one, too
                any_battery = True
                if files.read(f"{path}/status").value == "Discharging":
                    discharging.append(path)
        if not any_battery and not online:
            reason = "no power supply is reported, as in servers and virtual machines: nothing to do"
            return self.state("unavailable", None, "mains", reason, SUPPLIES)
        if discharging or (any_battery and online and not any(online)):
            reason = "the machine runs on its battery; plug it in"
            return self.state("locked", "battery", "mains", reason, SUPPLIES)
        return self.state("stable", "mains", "mains", "", SUPPLIES)
