module pronghorn/tests/applications/fastcgi

go 1.24
