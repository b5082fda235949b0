'use strict';

// The suite of conformance where another thread waits for what listens, as in hosts whose event loop is not libuv.

require('./support/by-thread');
require('./conformance.test.js');
