"""Which broker settings are in force on a broker.

Three places can set them, and the most specific wins: the file that the broker was started with, the settings made at
run time for all brokers, and those made at run time for this broker. Settings of topics fall back to these
(`topic_config`). Every room that needs the settings of a broker takes them from here, so that all of them agree.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from headrace.model.image import ClusterImage

_ALL_BROKERS = ""


class BrokerFile(Struct, frozen=True):
    """The settings file that a broker was started with, and whose it is."""

    broker_id: int
    settings: Mapping[str, str] = field(default_factory=dict)

    def in_force(self, image: ClusterImage, broker_id: int | None = None) -> dict[str, str]:
        """The settings in force on this broker, or on another one.

        A broker cannot read the file of another one. It takes its own in its place: the brokers of a cluster are
        expected to be started with the same settings. What was set at run time is known of every broker.
        """
        dynamic = image.broker_settings
        own = dynamic.get(str(self.broker_id if broker_id is None else broker_id), {})
        return {**self.settings, **dynamic.get(_ALL_BROKERS, {}), **own}


NO_FILE = BrokerFile(-1)  # for those that ask for no broker's settings
