'use strict';

// Loaded before a test: polls listeners on a thread, as in hosts whose event loop is not libuv.

require('../../lib/native').pollByThread(true);
