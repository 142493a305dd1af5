"""NetworkEnvironment: the data plane of one worker: its connections to other workers, and the table of open channels.

Owner: task threads and the I/O thread share the table under one lock; sockets (data_sockets.py) belong to the
I/O thread. The first end of a channel waits in the table for the other, so tasks may be deployed in any
order.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import msgspec

from yarrow.container.network.blocking_partition import LocalFrames, ResultKey, ResultSpool
from yarrow.container.network.channel_recording import ChannelOrigin
from yarrow.container.network.connection import Connection
from yarrow.container.network.data_ports import DataPorts
from yarrow.container.network.data_sockets import DataSockets
from yarrow.container.network.element_codec import Buffer, ElementCodec
from yarrow.container.network.frames import (
    CreditGrant,
    FetchResult,
    FrameHeader,
    FrameType,
    OpenChannel,
    WireProtocolError,
    encode_header,
)
from yarrow.container.network.input_channel import InputChannel
from yarrow.container.network.io_thread import IoThread
from yarrow.container.network.output_channel import LocalOutputChannel, OutputChannel, RemoteOutputChannel
from yarrow.container.network.peer_channels import (
    FROM_CONSUMER,
    ChannelKey,
    IncomingChannel,
    PeerChannels,
    RemoteCredit,
    failed_output,
)
from yarrow.container.protocol.worker_protocol import WorkerSettings
from yarrow.runtime.common.ids import ExecutionAttemptID, attempt_place
from yarrow.runtime.config.options import taskmanager
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.data.serializers.serializers import serializer_for
from yarrow.runtime.rpc.messages import WorkerAddress

#: Results are sent in their stored encoding.
_NO_CODEC = ElementCodec(serializer_for(None))


class NetworkEnvironment:
    """Makes both ends of channels and carries their frames."""

    def __init__(self, settings: WorkerSettings, io_thread: IoThread) -> None:
        self._settings = settings
        self._io = io_thread
        self._lock = threading.Lock()
        self._inputs: dict[ChannelKey, InputChannel] = {}
        self._waiting_local: dict[ChannelKey, LocalOutputChannel] = {}
        self._waiting_remote: dict[ChannelKey, IncomingChannel] = {}
        #: Number of the last ended attempt, by subtask: later data for it or earlier ones is refused.
        self._released: dict[str, int] = {}
        self._peers: dict[Connection, PeerChannels] = {}
        self._by_worker: dict[str, Connection] = {}
        options = Settings(settings.configuration, "the TaskExecutor")
        max_payload = options.get(taskmanager.MAX_FRAME_SIZE).bytes
        transport = options.get(taskmanager.DATA_TRANSPORT)
        self._sockets = DataSockets(
            settings, io_thread, self, max_payload, DataPorts.of(options), transport=transport
        )
        #: Results of blocking edges.
        self.spool = ResultSpool(
            os.path.join(settings.working_directory, "spool"),
            options.get(taskmanager.BLOCKING_SPOOL_MAX_SIZE).bytes,
            max_payload,
        )
        self._address: WorkerAddress | None = None
        #: Unanswered requests for results, by connection: they fail with it.
        self._fetching: dict[Connection, list[InputChannel]] = {}

    @property
    def working_directory(self) -> str:
        """The worker's folder for sockets and temporary files."""
        return self._settings.working_directory

    # ------------------------------------------------------------------ life cycle

    def start(self) -> WorkerAddress:
        """Opens the listening sockets; call before the I/O thread starts or on it."""
        self._address = self._sockets.start()
        return self._address

    def stop(self) -> None:
        """Closes everything; open channels fail. Any thread, while the I/O thread still runs."""
        done = threading.Event()
        self.spool.stop()

        def close_all() -> None:
            self._sockets.stop_listening()
            for connection in list(self._peers):
                self.on_closed(connection, "the worker stops")
            done.set()

        self._io.post(close_all)
        done.wait(5)

    # ------------------------------------------------------------------ channels

    def open_input(
        self,
        key: ChannelKey,
        codec: ElementCodec,
        window_batches: int,
        window_bytes: int,
        wake: Callable[[], None],
        origin: ChannelOrigin | None = None,
    ) -> InputChannel:
        """The consumer's end of a channel; with an `origin` barriers may overtake its records."""
        channel = InputChannel(codec, window_batches, window_bytes, wake, origin)
        with self._lock:
            self._forget_former(key[0])
            self._inputs[key] = channel
            local = self._waiting_local.pop(key, None)
            remote = self._waiting_remote.pop(key, None)
            if remote is not None:
                remote.attach(channel)
        if local is not None:
            local.attach(channel)
        return channel

    def open_output(
        self,
        key: ChannelKey,
        producer_attempt: ExecutionAttemptID,
        consumer: WorkerAddress,
        codec: ElementCodec,
        wake: Callable[[], None],
        copies_rows: bool,
    ) -> OutputChannel:
        """The producer's end of a channel; connects to the consumer's worker if that is another one."""
        if consumer.worker_id == self._settings.worker_id:
            local = LocalOutputChannel(wake, copies_rows, codec)
            with self._lock:
                target = self._inputs.get(key)
                if target is None:
                    self._waiting_local[key] = local
            if target is not None:
                local.attach(target)
            return local
        try:
            connection = self._connection_to(consumer)
        except OSError as error:
            where = f"{consumer.host}:{consumer.port}" if consumer.port else consumer.unix_path
            reason = f"worker {consumer.worker_id} does not answer at {where}: {error}"
            return failed_output(
                codec, wake, f"{reason}; the worker has ended, or a firewall refuses its port"
            )
        with self._lock:
            peer = self._peers.get(connection)
            if peer is None:
                return failed_output(codec, wake, connection.closed_because)
            number = peer.next_number
            peer.next_number += 1
            remote = RemoteOutputChannel(number, codec, connection, wake)
            peer.outgoing[number] = remote
            peer.producers.setdefault(producer_attempt, []).append(number)
        payload = msgspec.msgpack.encode(
            OpenChannel(
                edge=key[1],
                producer_attempt=producer_attempt,
                producer_subtask=key[2],
                consumer_attempt=key[0],
            )
        )
        connection.send([encode_header(FrameType.OPEN, number, len(payload)) + payload])
        return remote

    def _forget_former(self, attempt: ExecutionAttemptID) -> None:
        """Drops channel ends that wait for an earlier attempt of the same subtask."""
        place, number = attempt_place(attempt)

        def is_former(key: ChannelKey) -> bool:
            other, earlier = attempt_place(key[0])
            return other == place and earlier < number

        for local in [key for key in self._waiting_local if is_former(key)]:
            del self._waiting_local[local]
        for remote in [key for key in self._waiting_remote if is_former(key)]:
            del self._waiting_remote[remote]

    def _is_released(self, attempt: ExecutionAttemptID) -> bool:
        place, number = attempt_place(attempt)
        return number <= self._released.get(place, -1)

    def open_result(self, channel: InputChannel, producer: WorkerAddress, request: FetchResult) -> None:
        """Requests the complete result of a finished producer for a channel that `open_input` made."""
        channel.reads_result_of = request.producer_attempt
        if producer.worker_id == self._settings.worker_id:
            frames = LocalFrames(channel)
            frames.wake = self.spool.serve(_result_key(request), frames)
            channel.connect(frames)
            return
        try:
            connection = self._connection_to(producer)
        except OSError as error:
            channel.fail(f"worker {producer.worker_id} with the result does not answer: {error}")
            return
        with self._lock:
            if connection in self._peers:
                former = self._fetching.get(connection, [])
                kept = [other for other in former if not other.ended and not other.closed]
                self._fetching[connection] = [*kept, channel]
                connected = True
            else:
                connected = False
        if not connected:
            channel.fail(connection.closed_because)
            return
        payload = msgspec.msgpack.encode(request)
        connection.send([encode_header(FrameType.FETCH, 0, len(payload)) + payload])

    def fetch_request(
        self, edge: int, producer: tuple[str, int], consumer: tuple[ExecutionAttemptID, int]
    ) -> FetchResult:
        """A request for a result, with (attempt, subtask) of both ends; call after `start`."""
        assert self._address is not None
        return FetchResult(edge, *producer, *consumer, self._address)

    def _serve_result(self, payload: Buffer) -> None:
        try:
            request = msgspec.msgpack.decode(payload, type=FetchResult)
        except msgspec.MsgspecError as error:
            raise WireProtocolError(f"data connection: malformed FETCH: {error}") from error
        key = (ExecutionAttemptID(request.consumer_attempt), request.edge, request.producer_subtask)
        go_on: list[Callable[[], None]] = []
        output = self.open_output(
            key,
            ExecutionAttemptID(request.producer_attempt),
            request.consumer,
            _NO_CODEC,
            lambda: go_on[0]() if go_on else None,
            copies_rows=False,
        )
        assert isinstance(output, RemoteOutputChannel)
        go_on.append(self.spool.serve(_result_key(request), output))

    def release(self, attempt: ExecutionAttemptID) -> None:
        """Ends an attempt: forgets its input channels, tells their producers, and forgets its outputs."""
        place, number_of_attempt = attempt_place(attempt)
        with self._lock:
            self._released[place] = max(number_of_attempt, self._released.get(place, -1))
            outputs = [
                peer.outgoing.pop(number)
                for peer in self._peers.values()
                for number in peer.producers.pop(attempt, ())
                if number in peer.outgoing
            ]
            for key in [k for k in self._inputs if k[0] == attempt]:
                self._inputs.pop(key).close()
            for key in [k for k in self._waiting_remote if k[0] == attempt]:
                del self._waiting_remote[key]
            gone = [
                (peer, number, incoming)
                for peer in self._peers.values()
                for number, incoming in peer.incoming.items()
                if incoming.key[0] == attempt
            ]
            for peer, number, incoming in gone:
                peer.incoming[number] = IncomingChannel(incoming.key, incoming.credit, dropped=True)
        for _, _, incoming in gone:
            if incoming.target is None or not incoming.target.ended:
                incoming.credit.close("the consuming task has ended")
        for output in outputs:
            # After the end of data this only tells the other side that the channel's number is free.
            output.close("the producing task has ended")

    # ------------------------------------------------------------------ connections

    def _connection_to(self, consumer: WorkerAddress) -> Connection:
        with self._lock:
            known = self._by_worker.get(consumer.worker_id)
            if known is not None:
                return known
        connection = self._sockets.connect(consumer)
        with self._lock:
            self._peers[connection] = PeerChannels()
            self._by_worker[consumer.worker_id] = connection
        self._io.post(lambda: self._sockets.watch(connection))
        return connection

    # ------------------------------------------------------------------ SocketListener, on the I/O thread

    def on_accepted(self, connection: Connection) -> None:
        """Takes a peer's connection; the handshake will show who it is."""
        with self._lock:
            self._peers[connection] = PeerChannels()

    def on_authenticated(self, connection: Connection) -> None:
        """Takes note of the peer's proof: later channels to it use this connection too."""
        with self._lock:
            self._by_worker.setdefault(connection.peer_id, connection)

    def on_frame(self, connection: Connection, header: FrameHeader, payload: Buffer) -> None:
        """Takes a whole frame of an authenticated peer."""
        peer = self._peers[connection]
        if header.type is FrameType.FETCH:
            self._serve_result(payload)
        elif header.type is FrameType.OPEN:
            self._on_open(connection, peer, header.channel, payload)
        elif header.flags & FROM_CONSUMER and header.type in (FrameType.CREDIT, FrameType.CLOSE):
            outgoing = peer.outgoing.get(header.channel)
            if outgoing is None:
                return
            if header.type is FrameType.CLOSE:
                outgoing.fail(bytes(payload).decode(errors="replace"))
                return
            try:
                grant = msgspec.msgpack.decode(payload, type=CreditGrant)
            except msgspec.MsgspecError as error:
                raise WireProtocolError(f"data connection: malformed CREDIT: {error}") from error
            outgoing.grant(grant.batches, grant.bytes)
        else:
            incoming = peer.incoming.get(header.channel)
            if incoming is None:
                raise WireProtocolError(
                    f"data connection: {header.type.name} for channel {header.channel}, never opened"
                )
            if header.type is FrameType.CLOSE:
                # Numbers are not reused: nothing more comes for this one.
                with self._lock:
                    peer.incoming.pop(header.channel, None)
                incoming.fail(bytes(payload).decode(errors="replace"))
            else:
                incoming.frame(header, payload)

    def _on_open(self, connection: Connection, peer: PeerChannels, number: int, payload: Buffer) -> None:
        try:
            opened = msgspec.msgpack.decode(payload, type=OpenChannel)
        except msgspec.MsgspecError as error:
            raise WireProtocolError(f"data connection: malformed OPEN: {error}") from error
        key = (ExecutionAttemptID(opened.consumer_attempt), opened.edge, opened.producer_subtask)
        with self._lock:
            released = self._is_released(key[0])
            incoming = IncomingChannel(key, RemoteCredit(connection, number), dropped=released)
            peer.incoming[number] = incoming
            target = self._inputs.get(key)
            if target is not None:
                incoming.attach(target)
            elif not released:
                self._waiting_remote[key] = incoming
        if target is None and released:
            incoming.credit.close("the consuming task has ended")

    def on_closed(self, connection: Connection, reason: str) -> None:
        """Fails all channels of a broken or closed connection."""
        with self._lock:
            connection.closed_because = connection.closed_because or reason
            peer = self._peers.pop(connection, None)
            if self._by_worker.get(connection.peer_id) is connection:
                del self._by_worker[connection.peer_id]
            fetching = self._fetching.pop(connection, [])
        if peer is None:
            return
        self._sockets.close(connection)
        for channel in fetching:
            channel.fail(reason)
        for incoming in peer.incoming.values():
            incoming.fail(reason)
        for outgoing in peer.outgoing.values():
            outgoing.fail(reason)


def _result_key(request: FetchResult) -> ResultKey:
    return ResultKey(ExecutionAttemptID(request.producer_attempt), request.edge, request.consumer_subtask)
