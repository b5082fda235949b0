'use strict';

// The subscriptions of one application's WebSocket connections.

const native = require('./native');

class Topics {
  constructor() {
    /** Subscribers by topic. Topics without subscribers are removed. */
    this._topics = new Map();
  }

  count(topic) {
    return this._topics.get(topic)?.size ?? 0;
  }

  has(topic, ws) {
    return this._topics.get(topic)?.has(ws) ?? false;
  }

  /** Adds a subscription. Returns whether it is new. */
  add(topic, ws) {
    let subscribers = this._topics.get(topic);
    if (subscribers === undefined) this._topics.set(topic, (subscribers = new Set()));
    if (subscribers.has(ws)) return false;
    subscribers.add(ws);
    return true;
  }

  /** Removes a subscription. Returns whether it existed. */
  remove(topic, ws) {
    const subscribers = this._topics.get(topic);
    if (subscribers === undefined || !subscribers.delete(ws)) return false;
    if (subscribers.size === 0) this._topics.delete(topic);
    return true;
  }

  /**
   * Sends to all subscribers but `except`. Returns false if there are none, otherwise the numbers
   * of those that dropped the message.
   */
  publish(topic, content, flags, except) {
    const subscribers = this._topics.get(topic);
    if (subscribers === undefined) return false;
    const numbers = new Uint32Array(subscribers.size);
    let count = 0;
    for (const ws of subscribers) {
      if (ws !== except) numbers[count++] = ws._number;
    }
    if (count === 0) return false;
    const dropped = native.socketPublish(
      new Uint8Array(numbers.buffer, 0, count * 4),
      content,
      flags,
    );
    return { dropped: dropped === undefined ? [] : new Uint32Array(dropped) };
  }
}

module.exports = { Topics };
