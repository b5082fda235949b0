'use strict';

// Who has subscribed to what, for the connections of one application.

const native = require('./native');

class Topics {
  constructor() {
    /** Subscribers of each topic that has any. */
    this._topics = new Map();
  }

  count(topic) {
    return this._topics.get(topic)?.size ?? 0;
  }

  has(topic, ws) {
    return this._topics.get(topic)?.has(ws) ?? false;
  }

  /** Whether it is new. */
  add(topic, ws) {
    let subscribers = this._topics.get(topic);
    if (subscribers === undefined) this._topics.set(topic, (subscribers = new Set()));
    if (subscribers.has(ws)) return false;
    subscribers.add(ws);
    return true;
  }

  /** Whether it was there. */
  remove(topic, ws) {
    const subscribers = this._topics.get(topic);
    if (subscribers === undefined || !subscribers.delete(ws)) return false;
    if (subscribers.size === 0) this._topics.delete(topic);
    return true;
  }

  /** Sends to all subscribers but `except`. Returns whether there are any, and tells those that drop it. */
  publish(topic, content, flags, except) {
    const subscribers = this._topics.get(topic);
    if (subscribers === undefined) return false;
    const numbers = new Uint32Array(subscribers.size);
    let count = 0;
    for (const ws of subscribers) {
      if (ws !== except) numbers[count++] = ws._number;
    }
    if (count === 0) return false;
    const dropped = native.socketPublish(new Uint8Array(numbers.buffer, 0, count * 4), content, flags);
    return { dropped: dropped === undefined ? [] : new Uint32Array(dropped) };
  }
}

module.exports = { Topics };
