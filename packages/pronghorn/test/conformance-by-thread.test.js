'use strict';

// The conformance suite with another thread polling the listeners, as in hosts whose event loop is
// not libuv.

require('./support/by-thread');
require('./conformance.test.js');
