import { index, route } from '@react-router/dev/routes';

export default [index('./home.jsx'), route('api', './api.js'), route('slow', './slow.jsx')];
