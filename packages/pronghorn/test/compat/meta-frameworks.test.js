'use strict';

// What meta-frameworks build, over pronghorn and node:http side by side.
// docs/node/meta-frameworks.md says how they are started.

const { suites } = require('./support/suite');

suites((kind) => kind === 'meta-framework');
