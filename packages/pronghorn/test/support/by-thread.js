'use strict';

// Loaded before a test: what listens is waited for as in hosts whose event loop is not libuv.

require('../../lib/native').pollByThread(true);
