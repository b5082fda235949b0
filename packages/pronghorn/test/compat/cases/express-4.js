'use strict';

module.exports = { ...require('./express'), program: 'express' };
